"""The site's routes, and one endpoint that does nothing: what the framework itself costs."""

from django.http import HttpRequest
from django.urls import include, path
from ninja import NinjaAPI

bare = NinjaAPI(urls_namespace="bare", docs_url=None)


@bare.post("/constant")
def constant(request: HttpRequest) -> dict[str, bool]:
    return {"ok": True}


urlpatterns = [path("bare/", bare.urls), path("", include("config.urls"))]
