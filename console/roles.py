"""Make the groups and give them the permissions of the table in `console.permissions`."""

from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.db import transaction

from console.models import AuditEntry
from console.permissions import GRANTS
from console.permissions import Group as Role


@transaction.atomic
def sync_roles() -> dict[str, list[str]]:
    """Bring groups and permissions in line with the table; idempotent. Returns group -> permissions.

    Console permissions that a group has beyond the table are taken away; permissions of other apps and who is in
    which group stay as they are.
    """
    content_type = ContentType.objects.get_for_model(AuditEntry)
    permissions = {
        grant.action: Permission.objects.update_or_create(
            content_type=content_type, codename=grant.action.value, defaults={"name": grant.words[:255]}
        )[0]
        for grant in GRANTS
    }
    granted: dict[str, list[str]] = {}
    for role in Role:
        group, _ = Group.objects.get_or_create(name=role.value)
        wanted = [permissions[grant.action] for grant in GRANTS if role in grant.groups]
        surplus = group.permissions.filter(content_type=content_type).exclude(pk__in=[p.pk for p in wanted])
        group.permissions.remove(*surplus)
        group.permissions.add(*wanted)
        granted[role.value] = [permission.codename for permission in wanted]
    return granted
