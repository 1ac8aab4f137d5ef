/* The numbers of a stretch of the feed. Frames leave it in order, each once; what comes early waits for what is before. */
export class Sequence {
  /** after: the last number that is known already; null where the first frame decides. */
  constructor(after) {
    this.upto = after;
    this.waiting = new Map();
  }

  get gap() {
    return this.waiting.size > 0;
  }

  /** Returns the frames that are next in order now. */
  take(frame) {
    if (this.upto === null) this.upto = frame.seq - 1;
    if (frame.seq > this.upto) this.waiting.set(frame.seq, frame);
    return this.ready();
  }

  /** Goes on to `head` without what is missing before it. Returns how many numbers those are, and the frames. */
  skip(head) {
    const frames = [];
    let missing = 0;
    while (this.upto < head) {
      this.upto += 1;
      const frame = this.waiting.get(this.upto);
      if (frame) frames.push(frame);
      else missing += 1;
      this.waiting.delete(this.upto);
    }
    return { missing, frames: [...frames, ...this.ready()] };
  }

  ready() {
    const frames = [];
    for (let frame; (frame = this.waiting.get(this.upto + 1)); ) {
      this.waiting.delete(frame.seq);
      this.upto = frame.seq;
      frames.push(frame);
    }
    return frames;
  }
}
