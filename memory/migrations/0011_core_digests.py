"""Whose facts changed in an external core: digests, and how far the round over them has come."""

from django.db import migrations, models

import config.base.clock
import config.base.fields


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0010_rejected_words"),
    ]

    operations = [
        migrations.CreateModel(
            name="CoreRound",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("began_at", models.DateTimeField(default=config.base.clock.now)),
                ("complete_from", models.DateTimeField(blank=True, null=True)),
                ("step", models.PositiveSmallIntegerField(default=0)),
                ("tenant", config.base.fields.IdField(blank=True, default="")),
                ("after", config.base.fields.WholeTextField(blank=True, default="")),
                ("after_id", models.BigIntegerField(default=0)),
                ("size", models.PositiveIntegerField(default=20)),
                ("stuck", models.PositiveSmallIntegerField(default=0)),
                ("away_since", models.DateTimeField(blank=True, null=True)),
                ("first_at", models.DateTimeField(default=config.base.clock.now)),
                ("holder", config.base.fields.IdField(blank=True, default="")),
                ("held_until", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "db_table": "core_round",
            },
        ),
        migrations.CreateModel(
            name="CoreDigest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("tenant", config.base.fields.IdField()),
                ("customer_id", config.base.fields.IdField()),
                ("digest", models.CharField(blank=True, default="", max_length=120)),
                ("marked", models.PositiveIntegerField(default=0)),
            ],
            options={
                "verbose_name": "digest of a core customer",
                "verbose_name_plural": "digests of core customers",
                "db_table": "core_digest",
                "constraints": [models.UniqueConstraint(fields=("tenant", "customer_id"), name="core_digest_row")],
            },
        ),
    ]
