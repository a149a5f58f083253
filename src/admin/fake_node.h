// A node for tests: answers from values that the test sets. Lives on one loop.
#pragma once

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "admin/admin.h"

namespace omni::admin {

class FakeNode final : public NodeControl {
 public:
  explicit FakeNode(asio::io_context& loop) : changed_(loop, TimePoint::max()) {}

  NodeStatus node;
  std::vector<ModelStatus> model_list;
  std::vector<InstanceStatus> instance_list;
  std::string log_file;
  ReloadReport reload_report;
  ModelExplanation explanation;
  std::optional<Error> failure;      // of load, stop and reload
  std::vector<std::string> history;  // "load minilm"

  void add_event(Event event) {
    event["id"] = ++last_id_;
    ring_.push_back(std::move(event));
    changed_.cancel();
  }

  asio::awaitable<NodeStatus> status() override { co_return node; }
  asio::awaitable<std::vector<ModelStatus>> models() override { co_return model_list; }
  asio::awaitable<std::vector<InstanceStatus>> instances(bool with_pss) override {
    std::vector<InstanceStatus> list = instance_list;
    for (InstanceStatus& instance : list) instance.pss_bytes *= with_pss ? 1 : 0;
    co_return list;
  }
  asio::awaitable<Result<ModelExplanation>> explain(std::string model) override {
    if (failure) co_return *failure;
    ModelExplanation answer = explanation;
    answer.name = std::move(model);
    co_return answer;
  }
  asio::awaitable<Result<void>> load(std::string model) override {
    return set_state("load", std::move(model), "resident");
  }
  asio::awaitable<Result<void>> stop(std::string model) override {
    return set_state("stop", std::move(model), "stopped");
  }
  void shut_down() override {
    stopping_ = true;
    changed_.cancel();
  }
  bool stopping() const override { return stopping_; }
  asio::awaitable<Result<ReloadReport>> reload() override {
    history.emplace_back("reload");
    if (failure) co_return *failure;
    co_return reload_report;
  }
  std::string log_path(std::string_view) override { return log_file; }

  asio::awaitable<std::vector<Event>> events(std::uint64_t after, TimePoint until) override {
    std::vector<Event> found;
    while (found.empty() && !stopping_ && Clock::now() < until) {
      for (const Event& event : ring_) {
        if (event.at("id").to_number<std::uint64_t>() > after) found.push_back(event);
      }
      if (!found.empty()) break;
      changed_.expires_at(until);
      boost::system::error_code status;
      auto token = asio::redirect_error(asio::use_awaitable, status);
      co_await changed_.async_wait(token);
    }
    co_return found;
  }

 private:
  asio::awaitable<Result<void>> set_state(std::string verb, std::string model, std::string state) {
    history.push_back(verb + " " + model);
    if (failure) co_return *failure;
    const bool known = std::ranges::any_of(
        model_list, [&model](const ModelStatus& status) { return status.name == model; });
    if (!known) co_return Error{ErrorCode::model_not_found, "there is no model " + model};
    for (ModelStatus& status : model_list) {
      if (status.name == model) status.state = state;
    }
    co_return Result<void>();
  }

  asio::steady_timer changed_;
  std::deque<Event> ring_;
  std::uint64_t last_id_ = 0;
  std::atomic<bool> stopping_ = false;
};

}  // namespace omni::admin
