from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class RiskConfig(AppConfig):
    name = "risk"
    verbose_name = _("Risk")

    def ready(self) -> None:
        from django.contrib.auth.signals import user_logged_out

        from guard.access.unmasking import register_unmasking
        from memory.core.marking import on_assignments_changed, on_facts_changed
        from memory.erasure import registry
        from memory.profiles.restrictions import register_confirmed_alert_resolver
        from memory.profiles.snapshots.limits import register_concentration_limits
        from risk.alerts import deadlines, erasing, keeping
        from risk.alerts.selectors import confirmed_alerts
        from risk.calendar.services import on_days_changed
        from risk.conduct.campaigns import day_changed
        from risk.conduct.following import customers_changed
        from risk.conduct.services import mark_everyone
        from risk.console.customers import unmasking as customers
        from risk.console.unmasking import KIND, clear_alert
        from risk.feed.watch import tell_signed_out
        from risk.rules.concentration import concentration_limits
        from risk.rules.marking import register_advisors_marker

        register_confirmed_alert_resolver(confirmed_alerts)
        register_concentration_limits(concentration_limits)
        register_unmasking(KIND, clear_alert)
        register_unmasking(customers.KIND, customers.clear_customer)
        register_advisors_marker(mark_everyone)
        registry.register(erasing.PART)
        keeping.register_own()
        on_facts_changed(customers_changed)
        on_assignments_changed(customers_changed)
        on_days_changed(day_changed)
        on_days_changed(deadlines.days_changed)
        user_logged_out.connect(tell_signed_out, dispatch_uid="risk.feed.signed_out")
