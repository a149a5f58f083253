// Blocking work of a coroutine, carried out on the worker pool.
#pragma once

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <type_traits>
#include <utility>

namespace omni {

// Runs `work` (which owns all it uses) on a worker thread; the coroutine goes on where it was.
template <typename Work>
boost::asio::awaitable<std::invoke_result_t<Work>> run_on(boost::asio::thread_pool& workers,
                                                          Work work) {
  std::optional<std::invoke_result_t<Work>> result;
  auto initiate = [&workers, &result, &work](auto handler) {
    auto executor = boost::asio::get_associated_executor(handler);
    boost::asio::post(workers, [&result, &work, handler = std::move(handler),
                                guard = boost::asio::make_work_guard(executor)]() mutable {
      result.emplace(work());
      auto back = guard.get_executor();
      boost::asio::post(back, std::move(handler));
    });
  };
  auto token = boost::asio::use_awaitable;
  co_await boost::asio::async_initiate<decltype(token), void()>(initiate, token);
  co_return std::move(*result);
}

}  // namespace omni
