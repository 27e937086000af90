"""Every URL of the console. tests/architecture/test_urls.py has a line for each: add yours there."""

from django.contrib.auth.views import LogoutView
from django.urls import URLPattern, path

from console.api.urls import API_URLS
from console.views import (
    acts,
    audit,
    auth,
    data_loss,
    dead_letters,
    health,
    lag,
    now,
    relay,
    relay_acts,
    relay_events,
    relay_waiting,
    rewind,
    runbooks,
    system,
)

urlpatterns: list[URLPattern] = [
    path("", now.now, name="now"),
    path("incidents/<int:incident_id>/acknowledge/", acts.acknowledge, name="incident_acknowledge"),
    path("relay/", relay.relay, name="relay"),
    path("relay/pause/", relay_acts.pause, name="relay_pause"),
    path("relay/resume/", relay_acts.resume, name="relay_resume"),
    path("relay/history/", relay.relay_history, name="relay_history"),
    path("relay/history/data/", relay.relay_history_data, name="relay_history_data"),
    path("relay/waiting/", relay_waiting.relay_waiting, name="relay_waiting"),
    path("relay/events/", relay_events.relay_find, name="relay_find"),
    path("relay/events/<uuid:event_id>/", relay_events.relay_event, name="relay_event"),
    path("relay/topic/pause/", relay_acts.pause_topic, name="relay_topic_pause"),
    path("relay/topic/resume/", relay_acts.resume_topic, name="relay_topic_resume"),
    path("relay/topic/retry/", relay_acts.retry_topic, name="relay_topic_retry"),
    path("relay/topic/policy/", relay_acts.policy, name="relay_policy"),
    path("relay/topic/ingress/", relay_acts.ingress, name="relay_ingress"),
    path("relay/key/pause/", relay_acts.pause_key, name="relay_key_pause"),
    path("relay/key/resume/", relay_acts.resume_key, name="relay_key_resume"),
    path("relay/key/retry/", relay_acts.retry_key, name="relay_key_retry"),
    path("relay/row/skip/", relay_acts.skip_row, name="relay_row_skip"),
    path("lag/", lag.lag, name="lag"),
    path("lag/history/", lag.lag_history, name="lag_history"),
    path("lag/history/data/", lag.lag_history_data, name="lag_history_data"),
    path("lag/rewind/", rewind.rewind, name="rewind"),
    path("lag/rewind/apply/", rewind.rewind_apply, name="rewind_apply"),
    path("lag/data-loss/<int:loss_id>/", data_loss.data_loss, name="data_loss"),
    path("lag/data-loss/<int:loss_id>/settle/", data_loss.data_loss_settle, name="data_loss_settle"),
    path("lag/group/stop/", data_loss.group_stop, name="group_stop"),
    path("lag/group/start/", data_loss.group_start, name="group_start"),
    path("lag/allowed/", lag.lag_allowed, name="lag_allowed"),
    path("dead-letters/", dead_letters.dead_letters, name="dead_letters"),
    path("dead-letters/<uuid:dead_letter_id>/", dead_letters.dead_letter, name="dead_letter"),
    path("system/", system.system, name="system"),
    path("audit/", audit.audit, name="audit"),
    path("runbooks/<slug:kind>/", runbooks.runbook, name="runbook"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("permissions/", auth.permissions, name="permissions"),
    path("sign-in/", auth.SignIn.as_view(), name="login"),
    path("sign-out/", LogoutView.as_view(), name="logout"),
    path("look/", auth.look, name="look"),
    *API_URLS,
]

handler400 = "console.views.errors.bad_request"
handler403 = "console.views.errors.forbidden"
handler404 = "console.views.errors.not_found"
handler500 = "console.views.errors.failed"
