from django.db import migrations, models

# The columns of audit_log as this migration leaves them, in the order of their canonical bytes.
COLUMNS = (
    "id", "tenant", "at", "event_type", "decision", "actor_type", "actor_id", "on_behalf_of", "agent", "object_type",
    "object_id", "code", "risk_score", "trace_id", "input_summary", "customer", "link", "mac",
)  # fmt: skip


def _add_link(apps, schema_editor):
    """A column with a constant default: neither MariaDB nor SQLite makes the table anew for it."""
    kind = "varchar(255)" if schema_editor.connection.vendor == "sqlite" else "varchar(255) CHARACTER SET ascii"
    schema_editor.execute(f"ALTER TABLE audit_log ADD COLUMN link {kind} NOT NULL DEFAULT ''")


def _remove_link(apps, schema_editor):
    schema_editor.execute("ALTER TABLE audit_log DROP COLUMN link")


def _begin(apps, schema_editor):
    from guard.audit.origin import begin

    begin(schema_editor.connection, apps.get_model("guard", "AuditSeal"), columns=COLUMNS)


class Migration(migrations.Migration):
    dependencies = [("guard", "0007_admission_notes")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(_add_link, _remove_link)],
            state_operations=[
                migrations.AddField(
                    model_name="auditlog",
                    name="link",
                    field=models.CharField(blank=True, db_default="", default="", editable=False, max_length=255),
                ),
            ],
        ),
        migrations.RunPython(_begin, migrations.RunPython.noop),
    ]
