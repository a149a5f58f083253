// The answers that need no model: probes, metrics, the list of models.
#pragma once

#include "gateway/request.h"

namespace omni::gateway {

asio::awaitable<Result<void>> answer_root(Request& request);
asio::awaitable<Result<void>> answer_alive(Request& request);  // /health, /livez
asio::awaitable<Result<void>> answer_readyz(Request& request);
asio::awaitable<Result<void>> answer_metrics(Request& request);
// Models that have processes, in the form of llama-swap.
asio::awaitable<Result<void>> answer_running(Request& request);
asio::awaitable<Result<void>> answer_models(Request& request);
asio::awaitable<Result<void>> answer_model(Request& request);
// 204 with what a browser, or anybody, may send.
asio::awaitable<Result<void>> answer_options(Request& request, std::string_view methods);

}  // namespace omni::gateway
