"""Small tables that people edit in the admin, row by row, through the room's services."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django import forms
from django.http import HttpRequest

from config.base.errors import DomainError
from guard.access.people import RefusalRecorded
from guard.access.roles import may
from guard.access.staff_admin import ReadOnlyAdmin, person_of, request_tenant


@contextmanager
def refusals_shown() -> Iterator[None]:
    """A service's refusal of a person is the page's: 403, and the row that the service has written is the only one."""
    try:
        yield
    except DomainError as refused:
        if refused.code == "FORBIDDEN":
            raise RefusalRecorded(refused.detail) from refused
        raise


class TableForm(forms.ModelForm):  # type: ignore[type-arg]
    """Knows the tenant, so that what is unique within it is asked before it is saved."""

    tenant = "default"

    def _post_clean(self) -> None:
        self.instance.tenant = self.tenant
        super()._post_clean()  # type: ignore[misc]

    def _get_validation_exclusions(self) -> set[str]:
        return super()._get_validation_exclusions() - {"tenant"}  # type: ignore[misc,no-any-return]


class EditedTable(ReadOnlyAdmin):
    """Rows of the viewer's tenant; who holds `permission` adds, changes and deletes them.

    by_role: only by role or by grant, not as a superuser: what decides about cases. As the service asks.
    """

    permission: str
    by_role = False
    form = TableForm
    exclude = ("tenant",)

    def save_row(self, row: Any, by: Any) -> None:
        """Calls the service. Errors: DomainError."""
        raise NotImplementedError

    def delete_row(self, row: Any, by: Any) -> None:
        """Calls the service. Errors: DomainError."""
        raise NotImplementedError

    def _edits(self, request: HttpRequest) -> bool:
        if self.by_role:
            return may(request.user, self.permission)
        return request.user.has_perm(self.permission)  # type: ignore[union-attr]

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._edits(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._edits(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._edits(request)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change=change, **kwargs)
        return type(form.__name__, (form,), {"tenant": request_tenant(request)})

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        obj.tenant = request_tenant(request)
        with refusals_shown():
            self.save_row(obj, person_of(request))

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        with refusals_shown():
            self.delete_row(obj, person_of(request))
