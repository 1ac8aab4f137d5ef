from django.db import migrations, models

import config.base.fields


class Migration(migrations.Migration):
    dependencies = [("guard", "0004_admission")]

    operations = [
        migrations.CreateModel(
            name="LockFence",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "series",
                    config.base.fields.IdField(editable=False, max_length=64, unique=True, verbose_name="series"),
                ),
                ("ceiling", models.PositiveBigIntegerField(default=0, editable=False, verbose_name="ceiling")),
            ],
            options={
                "verbose_name": "fencing numbers of locks",
                "verbose_name_plural": "fencing numbers of locks",
                "db_table": "lock_fence",
            },
        ),
    ]
