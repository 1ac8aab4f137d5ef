"""Everything that people read is there in Chinese, and what is compiled is what is written."""

from __future__ import annotations

import gettext
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "config" / "locale" / "zh_Hans" / "LC_MESSAGES"
needs_gettext = pytest.mark.skipif(shutil.which("msgfmt") is None, reason="GNU gettext (msgfmt) is not installed")


def catalogue(path: Path) -> gettext.GNUTranslations:
    with path.open("rb") as file:
        return gettext.GNUTranslations(file)


def texts(path: Path) -> dict[str, str]:
    return {str(key): value for key, value in catalogue(path)._catalog.items() if key}  # type: ignore[attr-defined]


@needs_gettext
@pytest.mark.parametrize("domain", ["django", "djangojs"])
def test_nothing_is_untranslated_or_fuzzy(domain: str) -> None:
    done = subprocess.run(
        ["msgfmt", "--check", "--statistics", "-o", "/dev/null", str(FOLDER / f"{domain}.po")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "untranslated" not in done.stderr, done.stderr
    assert "fuzzy" not in done.stderr, done.stderr


@needs_gettext
@pytest.mark.parametrize("domain", ["django", "djangojs"])
def test_what_is_compiled_is_what_is_written(domain: str, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh.mo"
    subprocess.run(["msgfmt", "-o", str(fresh), str(FOLDER / f"{domain}.po")], check=True)
    assert texts(fresh) == texts(FOLDER / f"{domain}.mo"), "run manage.py compilemessages -l zh_Hans -i .venv"


@needs_gettext
@pytest.mark.slow
def test_every_text_of_the_code_is_in_the_catalogue(tmp_path: Path) -> None:
    """Extracts anew, in a copy of the sources, and compares: it takes the seconds that xgettext takes."""
    copy = tmp_path / "copy"
    rooms = ["config", "guard", "memory", "risk", "templates", "manage.py"]
    copy.mkdir()
    for name in rooms:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    environment = {"DATA_DIR": str(tmp_path / "var"), "SECRET_KEY": "only-for-tests", "PATH": _path()}
    for domain in ("django", "djangojs"):
        subprocess.run(
            [sys.executable, "manage.py", "makemessages", "-l", "zh_Hans", "-d", domain, "--no-location",
             "--no-obsolete", "--no-wrap"],
            cwd=copy, check=True, capture_output=True, env=environment,
        )  # fmt: skip
        fresh = copy / "config" / "locale" / "zh_Hans" / "LC_MESSAGES" / f"{domain}.po"
        missing = _ids(fresh) - _ids(FOLDER / f"{domain}.po")
        assert not missing, f"not in {domain}.po: {sorted(missing)}"


def _path() -> str:
    import os

    return os.environ.get("PATH", "/usr/bin")


def _ids(path: Path) -> set[str]:
    """The msgids of a .po file, whether translated or not."""
    found: set[str] = set()
    current: list[str] | None = None
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("msgid "):
            current = [line[6:]]
        elif line.startswith('"') and current is not None:
            current.append(line)
        elif current is not None:
            found.add("".join(part[1:-1] for part in current))
            current = None
    return found - {""}


def test_the_words_of_the_specification_are_the_words_on_the_screen() -> None:
    words = texts(FOLDER / "django.mo")
    wanted = {
        "alert": "预警", "hit": "命中", "shadow": "影子运行", "score": "风险评分", "level 1": "一级升级",
        "level 2": "二级升级", "pending": "待处理", "in review": "处理中", "escalated": "已上报待复核",
        "confirmed": "确认违规", "false positive": "误报", "closed": "已办结", "disposition": "处置", "Claim": "领取",
        "Release to the queue": "退回队列", "Reopen": "重新打开", "evidence": "证据", "unmask": "查看明文",
        "Suitability": "适当性", "risk tolerance": "风险承受能力", "product risk level": "产品风险等级",
        "Risk assessments": "风险测评", "ordinary investor": "普通投资者", "professional investor": "专业投资者",
        "dual recording": "双录", "risk disclosure": "风险揭示", "concentration": "集中度",
        "large-amount report": "大额交易报告", "structuring": "拆分交易", "Churning": "频繁交易", "advisor": "代理人",
        "AI agent": "智能体", "advisor conduct": "代理人行为异常", "audit log": "审计日志", "legal hold": "法定保全",
        "unsuitable sale": "不适当销售", "suspected structuring (handed to AML)": "疑似拆分(移交反洗钱)",
    }  # fmt: skip
    assert {english: words.get(english) for english in wanted} == wanted
    # 智能体 is an AI agent's word; an advisor is never called so.
    assert not [english for english, chinese in words.items() if english == "advisor" and "智能体" in chinese]
