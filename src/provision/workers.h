// Blocking work off the loop, awaited.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/result.h"

namespace omni {

namespace asio = boost::asio;

// Runs `work`, a function that returns Result<T>, on the pool; the caller resumes on its own loop.
// `work` runs to its end even if the caller is cancelled: it owns what it uses.
template <typename Work>
asio::awaitable<std::invoke_result_t<Work>> on_workers(asio::thread_pool& workers, Work work) {
  using T = std::invoke_result_t<Work>;
  // Result has no default value, which co_spawn's completion needs for its error path.
  auto result = std::make_shared<std::optional<T>>();  // with the worker
  auto task = [](Work job, std::shared_ptr<std::optional<T>> into) -> asio::awaitable<void> {
    into->emplace(job());
    co_return;
  };
  auto spawned = asio::co_spawn(workers, task(std::move(work), result), asio::use_awaitable);
  co_await std::move(spawned);
  co_return *std::move(*result);
}

}  // namespace omni
