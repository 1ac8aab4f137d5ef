from django.http import HttpRequest, HttpResponse


def live(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


ready = metrics = live
