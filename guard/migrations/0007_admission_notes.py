from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps


def take_over(apps: StateApps, _editor: BaseDatabaseSchemaEditor) -> None:
    """Whoever has written is the newest holder that is known; one that has not yet is admitted anew."""
    apps.get_model("guard", "Fence").objects.update(issued=models.F("seen"))


class Migration(migrations.Migration):
    dependencies = [
        ("guard", "0006_audit_search"),
    ]

    operations = [
        migrations.AddField(
            model_name="budgetmonth",
            name="untold_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddIndex(
            model_name="budgetmonth",
            index=models.Index(fields=["untold_at"], name="budget_month_untold"),
        ),
        migrations.AddField(
            model_name="fence",
            name="issued",
            field=models.PositiveBigIntegerField(default=0),
        ),
        migrations.RunPython(take_over, migrations.RunPython.noop),
    ]
