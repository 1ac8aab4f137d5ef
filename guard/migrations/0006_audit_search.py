from django.db import migrations, models

# Name -> columns. Each serves a question of the console and the order of its pages.
ADDED = {
    "audit_actor_at": ["tenant", "actor_id", "at"],
    "audit_behalf_at": ["tenant", "on_behalf_of", "at"],
    "audit_object_id_at": ["tenant", "object_id", "at"],
    "audit_customer_at": ["tenant", "customer", "at"],
    "audit_decision_at": ["tenant", "decision", "at"],
    "audit_kind_at": ["tenant", "actor_type", "at"],
    "audit_code_at": ["tenant", "code", "at"],
}
REMOVED = {
    "audit_object_at": ["tenant", "object_type", "object_id", "at"],
    "audit_customer": ["tenant", "customer", "id"],
}


def _change(schema_editor, added, removed):
    """In MariaDB and MySQL one statement that either happens or does not, reads the table once, and lets rows be
    written meanwhile; or it is refused, never quietly done under a lock. The table is not made anew, so its triggers
    stay, in SQLite too."""
    quote = schema_editor.quote_name
    if schema_editor.connection.vendor == "mysql":
        parts = [f"ADD INDEX {quote(name)} ({', '.join(map(quote, columns))})" for name, columns in added.items()]
        parts += [f"DROP INDEX {quote(name)}" for name in removed]
        schema_editor.execute(f"ALTER TABLE audit_log {', '.join(parts)}, ALGORITHM=INPLACE, LOCK=NONE")
        return
    for name, columns in added.items():
        schema_editor.execute(f"CREATE INDEX {quote(name)} ON audit_log ({', '.join(map(quote, columns))})")
    for name in removed:
        schema_editor.execute(f"DROP INDEX {quote(name)}")


def forwards(apps, schema_editor):
    _change(schema_editor, ADDED, REMOVED)


def backwards(apps, schema_editor):
    _change(schema_editor, REMOVED, ADDED)


class Migration(migrations.Migration):
    dependencies = [("guard", "0005_lock_fence")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(forwards, backwards)],
            state_operations=[
                *(migrations.RemoveIndex(model_name="auditlog", name=name) for name in REMOVED),
                *(
                    migrations.AddIndex(model_name="auditlog", index=models.Index(fields=columns, name=name))
                    for name, columns in ADDED.items()
                ),
            ],
        ),
    ]
