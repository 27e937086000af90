"""Policies by API: what counts, its versions, set, withdraw, roll back. The scopes are those of the editor."""

from typing import Any

from django.http import QueryDict
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions import policies as acts
from console.api.base import Endpoint, answer, take
from console.api.problems import NotThere
from console.api.replay_shapes import Given
from console.api.shapes import Shape
from console.policy_scopes import SCOPES, PolicyView, Scope
from dlq import facade as dlq
from relay import facade as relay

_SUBJECT = OpenApiParameter("subject", str, description="Whose policy, as the list names it.")


class PolicyVersionShape(Shape):
    """One version, as it was set."""

    version = serializers.IntegerField()
    document = serializers.DictField()
    actor = serializers.CharField()
    reason = serializers.CharField()
    created_at = serializers.DateTimeField()


class PolicyShape(Shape):
    """What counts for a subject. `version` is the newest of the subject itself; 0 = it never had one."""

    scope = serializers.CharField()
    subject = serializers.CharField()
    title = serializers.CharField()
    document = serializers.DictField()
    version = serializers.IntegerField()
    is_own = serializers.BooleanField()
    # `source` is a word of the serializer's own.
    decided_by = serializers.CharField()
    set_by = serializers.CharField()
    set_at = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField()
    problem = serializers.CharField()
    versions = PolicyVersionShape(many=True)


class PolicyRefShape(Shape):
    """Where a policy is read."""

    scope = serializers.CharField()
    subject = serializers.CharField()
    version = serializers.IntegerField()


class PolicyListShape(Shape):
    """Every subject for which something is handled or set."""

    policies = PolicyRefShape(many=True)


class SetGiven(Given):
    """`version` is the subject's newest one as it was seen: when another one is in force, nothing is done (409)."""

    subject = serializers.CharField(allow_blank=True)
    document = serializers.DictField()
    version = serializers.IntegerField(min_value=0)
    reason = serializers.CharField()


class WithdrawGiven(Given):
    """Let the next wider policy count again."""

    subject = serializers.CharField(allow_blank=True)
    version = serializers.IntegerField(min_value=0)
    reason = serializers.CharField()


class RollBackGiven(WithdrawGiven):
    """Put an older version in force again, as a new one."""

    to_version = serializers.IntegerField(min_value=1)


class Policies(Endpoint):
    """The policies."""

    @extend_schema(operation_id="list_policies", responses=PolicyListShape)
    def get(self, request: Request) -> Response:
        """List the subjects of policies."""
        del request
        consumers = [
            {"scope": "consumer", "subject": dlq.subject_of(line.target), "version": line.own_version}
            for line in dlq.list_retry_policies()
        ]
        topics = [
            {"scope": "relay-topic", "subject": policy.topic, "version": policy.version}
            for policy in relay.list_relay_policies()
        ]
        return answer(PolicyListShape, {"policies": consumers + topics})


class Policy(Endpoint):
    """One policy."""

    @extend_schema(operation_id="get_policy", parameters=[_SUBJECT], responses=PolicyShape)
    def get(self, request: Request, slug: str) -> Response:
        """Show what counts for a subject, with its versions, newest first."""
        return _show(_scope(slug), request.query_params.get("subject", ""))

    @extend_schema(operation_id="set_policy", request=SetGiven, responses=PolicyShape)
    def post(self, request: Request, slug: str) -> Response:
        """Set the policy of a subject; fields that are left out stay as they count now."""
        scope, given = _scope(slug), take(SetGiven, request)
        subject = _subject(scope, given["subject"])
        document = scope.check(subject, {**scope.view(subject).document, **given["document"]})
        acts.set_policy(request.user, scope, subject, document, seen=given["version"], reason=given["reason"])
        return _show(scope, subject)


class WithdrawPolicy(Endpoint):
    """Without a policy of its own."""

    @extend_schema(operation_id="withdraw_policy", request=WithdrawGiven, responses=PolicyShape)
    def post(self, request: Request, slug: str) -> Response:
        """Let the next wider policy count for a subject again."""
        scope, given = _scope(slug), take(WithdrawGiven, request)
        subject = _subject(scope, given["subject"])
        acts.withdraw_policy(request.user, scope, subject, seen=given["version"], reason=given["reason"])
        return _show(scope, subject)


class RollBackPolicy(Endpoint):
    """As it was."""

    @extend_schema(operation_id="roll_back_policy", request=RollBackGiven, responses=PolicyShape)
    def post(self, request: Request, slug: str) -> Response:
        """Put an older version of a subject in force again, as a new version."""
        scope, given = _scope(slug), take(RollBackGiven, request)
        subject = _subject(scope, given["subject"])
        acts.roll_back_policy(
            request.user, scope, subject, given["to_version"], seen=given["version"], reason=given["reason"]
        )
        return _show(scope, subject)


def _scope(slug: str) -> Scope:
    if slug not in SCOPES:
        raise NotThere(f"There is no scope {slug}; there are {' and '.join(SCOPES)}.")
    return SCOPES[slug]


def _subject(scope: Scope, text: str) -> str:
    query = QueryDict(mutable=True)
    query["subject"] = text
    return scope.read_subject(query)


def _show(scope: Scope, text: str) -> Response:
    subject = _subject(scope, text)
    view = scope.view(subject)
    return answer(PolicyShape, {**_facts(view), "scope": scope.slug, "versions": scope.versions(subject)})


def _facts(view: PolicyView) -> dict[str, Any]:
    return {
        "subject": view.subject,
        "title": view.title,
        "document": dict(view.document),
        "version": view.version,
        "is_own": view.is_own,
        "decided_by": view.source,
        "set_by": view.set_by,
        "set_at": view.set_at,
        "reason": view.reason,
        "problem": view.problem,
    }
