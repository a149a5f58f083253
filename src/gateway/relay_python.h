// Serving a request on a Python instance, over the model protocol.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/model_channel.h"
#include "gateway/body.h"
#include "gateway/request.h"
#include "gateway/serve.h"
#include "gateway/task_adapter.h"

namespace omni::gateway {

// What the handler gets, in a form that can be sent again: a file's descriptor is made anew for
// each attempt.
struct HandlerRequest {
  json::object parameters;
  std::vector<UploadedFile> files;
  std::string content_type;  // of a raw body
  bool raw = false;
  std::string body;  // of a raw body that is held; else the one file is it, its name empty
};

class PythonBackend : public Backend {
 public:
  using AdapterFactory = std::function<std::unique_ptr<TaskAdapter>()>;

  // `make_adapter` is called for each attempt.
  PythonBackend(HandlerRequest handler_request, AdapterFactory make_adapter)
      : wanted_(std::move(handler_request)), make_adapter_(std::move(make_adapter)) {}

  asio::awaitable<Attempt> attempt(Request& request, Lease& lease) override;
  void timed_out(Lease lease) override;
  bool replayable() const override { return true; }

 private:
  Result<engine::ModelRequest> message(const Request& request) const;
  asio::awaitable<Result<void>> relay(Request& request, engine::ModelCall& call,
                                      TaskAdapter& adapter);
  asio::awaitable<Result<void>> relay_items(Request& request, engine::ModelCall& call,
                                            TaskAdapter& adapter,
                                            const engine::ResponseStart& start);
  asio::awaitable<Result<void>> relay_refusal(Request& request, engine::ModelCall& call,
                                              const engine::ResponseStart& start);

  HandlerRequest wanted_;
  AdapterFactory make_adapter_;
  // Of the latest attempt.
  std::shared_ptr<engine::ModelChannel> channel_;
  Services* services_ = nullptr;
};

}  // namespace omni::gateway
