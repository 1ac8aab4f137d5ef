"""Words that were rejected in a draft are not submitted again: of drafts that stand rejected, those they have now."""

from typing import Any

from django.db import migrations

import config.base.fields


def remember_rejected(apps: Any, schema_editor: Any) -> None:
    drafts = apps.get_model("memory", "AdvisorDraft").objects.using(schema_editor.connection.alias)
    for draft in drafts.filter(review_status="rejected").only("pk", "content_hash").iterator(chunk_size=500):
        drafts.filter(pk=draft.pk).update(rejected_hashes=[draft.content_hash])


class Migration(migrations.Migration):
    dependencies = [("memory", "0009_parts_of_l3")]

    operations = [
        migrations.AddField(
            model_name="advisordraft",
            name="rejected_hashes",
            field=config.base.fields.CanonicalJSONField(
                blank=True, default=list, verbose_name="hashes of what was rejected"
            ),
        ),
        migrations.RunPython(remember_rejected, migrations.RunPython.noop),
    ]
