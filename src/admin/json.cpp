#include "admin/admin.h"

namespace omni::admin {
namespace {

namespace json = boost::json;

template <typename T>
json::value or_null(const std::optional<T>& value) {
  return value ? json::value(*value) : json::value(nullptr);
}

json::object to_json(const DeviceStatus& device) {
  return {{"name", device.name},
          {"budget_bytes", device.budget_bytes},
          {"granted_bytes", device.granted_bytes}};
}

}  // namespace

json::object to_json(const ModelStatus& status) {
  return {{"name", status.name},
          {"task", status.task},
          {"engine", status.engine},
          {"state", status.state},
          {"aliases", json::value_from(status.aliases)},
          {"pinned", status.pinned},
          {"waiting", status.waiting},
          {"in_flight", status.in_flight},
          {"requests", status.requests},
          {"memory_bytes", or_null(status.memory_bytes)},
          {"load_seconds", or_null(status.load_seconds)},
          {"version", status.version},
          {"last_error", status.last_error}};
}

json::object to_json(const InstanceStatus& status) {
  return {{"id", status.id},
          {"model", status.model},
          {"state", status.state},
          {"pid", status.pid},
          {"endpoint", status.endpoint},
          {"grant_bytes", status.grant_bytes},
          {"high_water_bytes", status.high_water_bytes},
          {"pss_bytes", status.pss_bytes},
          {"in_flight", status.in_flight},
          {"served", status.served},
          {"seconds_in_state", status.seconds_in_state},
          {"seconds_idle", status.seconds_idle}};
}

json::object to_json(const NodeStatus& status) {
  json::array devices;
  for (const DeviceStatus& device : status.devices) devices.push_back(to_json(device));
  return {{"version", status.version},
          {"pid", status.pid},
          {"uptime_seconds", status.uptime_seconds},
          {"rss_bytes", status.rss_bytes},
          {"listen", json::value_from(status.listen)},
          {"devices", std::move(devices)},
          {"reload_error", status.reload_error}};
}

json::object to_json(const ModelExplanation& explanation) {
  return {{"name", explanation.name},
          {"state", explanation.state},
          {"reason", explanation.reason},
          {"sentence", explanation.sentence},
          {"pinned", explanation.pinned},
          {"others", json::value_from(explanation.others)},
          {"waiting", explanation.waiting},
          {"oldest_wait_seconds", explanation.oldest_wait_seconds},
          {"retry_seconds", or_null(explanation.retry_seconds)},
          {"need_bytes", or_null(explanation.need_bytes)},
          {"need_source", explanation.need_source},
          {"device",
           {{"name", explanation.device},
            {"budget_bytes", explanation.budget_bytes},
            {"granted_bytes", explanation.granted_bytes},
            {"held_bytes", explanation.held_bytes},
            {"free_bytes", explanation.free_bytes}}},
          {"requests_per_second", explanation.requests_per_second},
          {"restart_seconds", or_null(explanation.restart_seconds)},
          {"victim_rank", or_null(explanation.victim_rank)}};
}

json::object to_json(const ReloadReport& report) {
  return {{"added", json::value_from(report.added)},
          {"removed", json::value_from(report.removed)},
          {"changed", json::value_from(report.changed)},
          {"unchanged", report.unchanged},
          {"at_next_start", json::value_from(report.at_next_start)}};
}

}  // namespace omni::admin
