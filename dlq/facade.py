"""The door of the dlq app: other apps call what is listed here and nothing else of it."""

from dlq.applied import AppliedCount, count_applied
from dlq.exporting import ExportedLetter, NotExportable, export_dead_letter
from dlq.foreign import BadImport, ForeignImportError, ImportReport, import_dead_letters
from dlq.handlers import Tx, UnknownGroup, handler, list_groups
from dlq.losses import BadLossChoice, DataLoss, StaleLoss, choose_after_loss, get_loss, list_open_losses
from dlq.queries import BadCursor, BadFilter, BadQuery, get_dead_letter, get_dlq_status, list_dead_letters
from dlq.relay_parking import find_parked_row
from dlq.runtime import ConsumerDied, run_group
from dlq.switch import AlreadyStopped, GroupSwitch, NotStopped, get_switch, get_switches, start_group, stop_group

__all__ = [
    "AlreadyStopped",
    "AppliedCount",
    "BadCursor",
    "BadFilter",
    "BadImport",
    "BadLossChoice",
    "BadQuery",
    "ConsumerDied",
    "DataLoss",
    "ExportedLetter",
    "ForeignImportError",
    "GroupSwitch",
    "ImportReport",
    "NotExportable",
    "NotStopped",
    "StaleLoss",
    "Tx",
    "UnknownGroup",
    "choose_after_loss",
    "count_applied",
    "export_dead_letter",
    "find_parked_row",
    "get_dead_letter",
    "get_dlq_status",
    "get_loss",
    "get_switch",
    "get_switches",
    "handler",
    "import_dead_letters",
    "list_dead_letters",
    "list_groups",
    "list_open_losses",
    "run_group",
    "start_group",
    "stop_group",
]
