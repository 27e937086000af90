"""Every address of the API. tests/architecture/test_api_urls.py has a line for each."""

from django.urls import URLPattern, path
from drf_spectacular.views import SpectacularAPIView

from console.api import dead_letters, policies, quarantine, replays, schema, triage

__all__ = ["API_URLS", "schema"]  # `schema` is imported to be known to drf-spectacular

_REPLAY = "api/v1/replays/<uuid:job_id>/"
_SECOND = "api/v1/second-requests/<int:request_id>/"

API_URLS: list[URLPattern] = [
    path("api/schema/", SpectacularAPIView.as_view(), name="api_schema"),
    path("api/v1/dead-letters/", dead_letters.DeadLetters.as_view(), name="api_dead_letters"),
    path("api/v1/dead-letters/<uuid:dead_letter_id>/", dead_letters.DeadLetter.as_view(), name="api_dead_letter"),
    path("api/v1/dead-letters/<uuid:dead_letter_id>/restore/", triage.Restore.as_view(), name="api_restore"),
    path("api/v1/discard-previews/", triage.DiscardPreviews.as_view(), name="api_discard_previews"),
    path("api/v1/discards/", triage.Discards.as_view(), name="api_discards"),
    path("api/v1/failure-groups/", triage.FailureGroups.as_view(), name="api_failure_groups"),
    path("api/v1/failure-groups/<int:number>/", triage.FailureGroup.as_view(), name="api_failure_group"),
    path("api/v1/policies/", policies.Policies.as_view(), name="api_policies"),
    path("api/v1/policies/<slug:slug>/", policies.Policy.as_view(), name="api_policy"),
    path("api/v1/policies/<slug:slug>/withdraw/", policies.WithdrawPolicy.as_view(), name="api_policy_withdraw"),
    path("api/v1/policies/<slug:slug>/roll-back/", policies.RollBackPolicy.as_view(), name="api_policy_roll_back"),
    path("api/v1/replay-previews/", replays.Previews.as_view(), name="api_replay_previews"),
    path("api/v1/replay-previews/<uuid:preview_id>/", replays.Preview.as_view(), name="api_replay_preview"),
    path("api/v1/replays/", replays.Replays.as_view(), name="api_replays"),
    path(_REPLAY, replays.Replay.as_view(), name="api_replay"),
    path(f"{_REPLAY}items/", replays.ReplayItems.as_view(), name="api_replay_items"),
    path(f"{_REPLAY}pause/", replays.PauseReplay.as_view(), name="api_replay_pause"),
    path(f"{_REPLAY}resume/", replays.ResumeReplay.as_view(), name="api_replay_resume"),
    path(f"{_REPLAY}cancel/", replays.CancelReplay.as_view(), name="api_replay_cancel"),
    path(f"{_REPLAY}rate/", replays.ReplayRate.as_view(), name="api_replay_rate"),
    path(f"{_REPLAY}failed/", replays.ReplayFailed.as_view(), name="api_replay_failed"),
    path("api/v1/second-requests/", replays.SecondRequests.as_view(), name="api_second_requests"),
    path(_SECOND, replays.SecondRequest.as_view(), name="api_second_request"),
    path(f"{_SECOND}confirm/", replays.SecondConfirm.as_view(), name="api_second_confirm"),
    path(f"{_SECOND}refuse/", replays.SecondRefuse.as_view(), name="api_second_refuse"),
    path(f"{_SECOND}withdraw/", replays.SecondWithdraw.as_view(), name="api_second_withdraw"),
    path("api/v1/quarantined-keys/", quarantine.Keys.as_view(), name="api_quarantined_keys"),
    path("api/v1/quarantined-keys/<uuid:key_id>/", quarantine.Key.as_view(), name="api_quarantined_key"),
    path("api/v1/quarantined-keys/<uuid:key_id>/release/", quarantine.ReleaseKey.as_view(), name="api_key_release"),
    path("api/v1/breakers/", quarantine.Breakers.as_view(), name="api_breakers"),
    path("api/v1/breakers/close/", quarantine.CloseBreaker.as_view(), name="api_breaker_close"),
]
