#include "gateway/request.h"

#include <fmt/format.h>

#include <algorithm>

namespace omni::gateway {
namespace {

constexpr std::size_t kLongestRequestId = 128;
constexpr std::size_t kLongestName = 256;  // of a model, to be looked for and shown

}  // namespace

Services::Services(asio::io_context& io, Shared& across, Admission& leases)
    : loop(io),
      shared(across),
      admission(leases),
      client(io),
      channels(io),
      tasks(io.get_executor()),
      random(std::random_device{}()) {}

std::string Services::new_request_id() {
  std::string id = "req_";
  for (std::uint64_t left = random(), i = 0; i < 24; ++i, left >>= 4) {
    if (i == 16) left = random();
    id += "0123456789abcdef"[left & 15];
  }
  return id;
}

std::string Services::new_boundary() {
  return fmt::format("omni-{:016x}{:016x}", random(), random());
}

Result<void> HeldBytes::hold(std::int64_t more) {
  const std::int64_t limit = shared_.config.load()->body_memory.count();
  const std::int64_t total = shared_.held_bytes.fetch_add(more, std::memory_order_relaxed) + more;
  held_ += more;
  if (total <= limit) return {};
  return Error{ErrorCode::overloaded,
               fmt::format("request bodies in memory would exceed {} (limits.body_memory)",
                           to_string(shared_.config.load()->body_memory))};
}

void HeldBytes::release() {
  shared_.held_bytes.fetch_sub(std::exchange(held_, 0), std::memory_order_relaxed);
}

Request::Request(Services& tools, http::Exchange& from, std::string id, std::string origin)
    : services(tools),
      exchange(from),
      answer(from, std::move(id), std::move(origin)),
      held(tools.shared) {}

Result<void> Request::choose_model(std::string_view name) {
  model_name = name;
  const RouteTable& routes = services.admission.routes();
  const auto* found = routes.find(name);
  if (!found) {
    answer.blame("model");
    if (name.size() > kLongestName) {
      return Error{ErrorCode::model_not_found,
                   fmt::format("there is no model with a name of {} bytes; GET /v1/models lists "
                               "them",
                               name.size())};
    }
    const std::string nearest = routes.nearest(name);
    return Error{
        ErrorCode::model_not_found,
        nearest.empty()
            ? fmt::format("there is no model \"{}\"; GET /v1/models lists them", name)
            : fmt::format("there is no model \"{}\"; did you mean \"{}\"?", name, nearest)};
  }
  // A broken spec still shows in the list, and when asked for by name.
  if ((*found)->unusable && route.api != Api::model) return *(*found)->unusable;
  if (!serves(route.api, (*found)->task)) {
    answer.blame("model");
    std::string endpoint(endpoint_of((*found)->task));
    if (endpoint.ends_with("{model}")) endpoint.replace(endpoint.find('{'), 7, name);
    return Error{ErrorCode::task_mismatch, fmt::format("model \"{}\" does {}: call {}", name,
                                                       to_string((*found)->task), endpoint)};
  }
  model = *found;
  return {};
}

Error client_left() { return {ErrorCode::cancelled, "the client left before the answer"}; }

std::string sane_request_id(std::string_view id) {
  const auto fit = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("-_.:+/=").find(c) != std::string_view::npos;
  };
  if (id.size() > kLongestRequestId || !std::ranges::all_of(id, fit)) return {};
  return std::string(id);
}

}  // namespace omni::gateway
