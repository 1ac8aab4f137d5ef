"""The answer cache: what an agent's model answered to a question, for the next one who asks it."""
