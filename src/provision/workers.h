// Blocking work off the loop, awaited.
#pragma once

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <type_traits>
#include <utility>

namespace omni {

namespace asio = boost::asio;

// Runs `work` on the pool and returns what it returns; the caller resumes on its own loop, which
// must outlive the pool. Cancelling does not stop `work`, so it owns what it uses; the caller sees
// the cancellation at its next await.
template <typename Work>
asio::awaitable<std::invoke_result_t<Work>> on_workers(asio::thread_pool& workers, Work work) {
  using T = std::invoke_result_t<Work>;
  auto initiate = [&workers](auto handler, Work job) {
    // Keeps the loop running while only the pool works.
    auto loop = asio::prefer(asio::get_associated_executor(handler),
                             asio::execution::outstanding_work.tracked);
    auto run = [handler = std::move(handler), job = std::move(job), loop]() mutable {
      auto finish = [handler = std::move(handler), result = job()]() mutable {
        std::move(handler)(std::move(result));
      };
      asio::post(loop, std::move(finish));
    };
    asio::post(workers, std::move(run));
  };
  auto token = asio::use_awaitable;
  auto operation = asio::async_initiate<decltype(token), void(T)>(initiate, token, std::move(work));
  T result = co_await std::move(operation);
  co_return result;
}

}  // namespace omni
