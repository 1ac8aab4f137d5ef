"""The site with the bare endpoint, for the benchmark: `python -m tests.bench.serve PORT`."""

import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

if __name__ == "__main__":
    import uvicorn
    from django.conf import settings

    settings.ROOT_URLCONF = "tests.bench.urls"
    uvicorn.run("config.asgi:application", host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
