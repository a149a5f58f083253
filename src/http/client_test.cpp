#include "http/client.h"

#include <gtest/gtest.h>

#include <boost/asio/detached.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <thread>

#include "http/http_test_support.h"

namespace omni::http {
namespace {

using namespace test;

TEST(Client, SendsWholeRequestAndGivesWholeAnswer) {
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    Client client(server.loop);
    auto answer = co_await client.request(server.endpoint, "POST", "/x", {}, "body", 5s);
    EXPECT_TRUE(answer.ok());
    if (!answer.ok()) co_return;
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, "POST /x body");
    EXPECT_EQ(answer->headers.get("content-type"), "text/plain");
  }());
}

TEST(Client, ReusesConnection) {
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    Client client(server.loop);
    for (int i = 0; i < 20; ++i) {
      auto answer = co_await client.request(server.endpoint, "GET", "/x", {}, "", 5s);
      EXPECT_TRUE(answer.ok());
    }
    EXPECT_EQ(server.server->connections(), 1u);
  }());
}

TEST(Client, SaysWhenNobodyListens) {
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    Client client(server.loop);
    const Endpoint nobody = Endpoint::unix_at((server.folder.path() / "nobody.sock").string());
    auto answer = co_await client.request(nobody, "GET", "/x", {}, "", 5s);
    EXPECT_FALSE(answer.ok());
    if (answer.ok()) co_return;
    EXPECT_EQ(answer.error().code, ErrorCode::daemon_unreachable);
    EXPECT_NE(answer.error().message.find("nobody.sock"), std::string::npos);
  }());
}

// ---- against a peer that does exactly what its script says

using Peer = Socket;

asio::awaitable<std::string> receive(Peer& peer) {
  char bytes[65536];
  const auto [status, count] = co_await peer.async_read_some(asio::buffer(bytes), kTuple);
  co_return std::string(bytes, count);
}

asio::awaitable<void> transmit(Peer& peer, std::string bytes) {
  co_await asio::async_write(peer, asio::buffer(bytes), kTuple);
}

// Runs the n-th script for the n-th connection, which closes when its script ends.
class ScriptedServer {
 public:
  using Script = std::function<asio::awaitable<void>(Peer&)>;

  explicit ScriptedServer(std::vector<Script> scripts) : scripts_(std::move(scripts)) {
    endpoint = Endpoint::unix_at((folder.path() / "peer.sock").string());
    auto listener = listen_on(endpoint);
    EXPECT_TRUE(listener.ok());
    listener_.assign(asio::local::stream_protocol(), listener->socket.release());
    asio::co_spawn(loop, accept(), asio::detached);
  }
  void run(asio::awaitable<void> body) { test::run(loop, std::move(body)); }

  TempFolder folder;
  asio::io_context loop{1};
  Endpoint endpoint;
  Client client{loop};
  std::size_t accepted = 0;
  std::size_t ended = 0;

 private:
  asio::awaitable<void> accept() {
    for (const Script& script : scripts_) {
      auto [status, socket] = co_await listener_.async_accept(kTuple);
      if (status) co_return;
      ++accepted;
      Peer peer(loop);
      peer.assign(asio::generic::stream_protocol(AF_UNIX, 0), socket.release(), status);
      asio::co_spawn(loop, serve(script, std::move(peer)), asio::detached);
    }
    listener_.close();
  }
  asio::awaitable<void> serve(const Script& script, Peer peer) {
    co_await script(peer);
    ++ended;
  }

  std::vector<Script> scripts_;
  asio::local::stream_protocol::acceptor listener_{loop};
};

ScriptedServer::Script answers(std::vector<std::string> texts) {
  return [texts](Peer& peer) -> asio::awaitable<void> {
    for (const std::string& text : texts) {
      const std::string request = co_await receive(peer);
      if (request.empty()) co_return;
      co_await transmit(peer, text);
    }
  };
}

// Answers, then holds the connection until the client closes it.
ScriptedServer::Script answers_and_stays(std::vector<std::string> texts) {
  return [texts](Peer& peer) -> asio::awaitable<void> {
    const auto script = answers(texts);
    co_await script(peer);
    co_await receive(peer);
  };
}

asio::awaitable<Result<std::string>> read_body(Call& call) {
  std::string body;
  for (;;) {
    const auto piece = co_await call.read_some();
    if (!piece.ok()) co_return piece.error();
    if (piece->empty()) co_return body;
    body += *piece;
  }
}

const std::string kGet = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const std::string kOk = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

TEST(ClientAnswer, IsReadInEveryFraming) {
  struct Row {
    const char* answer;
    const char* body;
    bool head_request = false;
  };
  const Row table[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nhe\r\n3\r\nllo\r\n0\r\nT: "
       "v\r\n\r\n",
       "hello"},
      {"HTTP/1.1 200 OK\r\n\r\nuntil close", "until close"},
      {"HTTP/1.0 200 OK\r\n\r\nold", "old"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""},
      {"HTTP/1.1 204 No Content\r\n\r\n", ""},
      {"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", ""},
      {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", "", true},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "", true},
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
       "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!",
       "!"},
  };
  for (const Row& row : table) {
    ScriptedServer server({answers({row.answer})});
    server.run([&]() -> asio::awaitable<void> {
      auto call = server.client.call(server.endpoint, {5s});
      EXPECT_EQ(call->progress(), Progress::nothing_sent);
      auto sent = co_await call->send((row.head_request ? "HEAD" : "GET") + kGet.substr(3), "");
      EXPECT_TRUE(sent.ok());
      EXPECT_EQ(call->progress(), Progress::sent);
      auto head = co_await call->read_head();
      EXPECT_TRUE(head.ok()) << row.answer << (head.ok() ? "" : head.error().message);
      if (!head.ok()) co_return;
      EXPECT_EQ(call->progress(), Progress::first_byte);
      EXPECT_GE(head->status, 200);
      const auto body = co_await read_body(*call);
      EXPECT_TRUE(body.ok()) << row.answer;
      if (body.ok()) EXPECT_EQ(*body, row.body);
    }());
  }
}

TEST(ClientAnswer, ArrivesSplitAtEveryByte) {
  const std::string answer =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n0\r\n\r\n";
  ScriptedServer server({[&](Peer& peer) -> asio::awaitable<void> {
    for (std::size_t cut = 1; cut < answer.size(); ++cut) {
      co_await receive(peer);
      co_await transmit(peer, answer.substr(0, cut));
      co_await pause(server.loop, 0ms);
      co_await transmit(peer, answer.substr(cut));
    }
  }});
  server.run([&]() -> asio::awaitable<void> {
    for (std::size_t cut = 1; cut < answer.size(); ++cut) {
      auto reply = co_await server.client.request(server.endpoint, "GET", "/", {}, "", 5s);
      EXPECT_TRUE(reply.ok()) << cut << ": " << (reply.ok() ? "" : reply.error().message);
      if (!reply.ok()) co_return;
      EXPECT_EQ(reply->body, "hello");
    }
    EXPECT_EQ(server.accepted, 1u) << "the end of the chunks gives the connection back";
  }());
}

TEST(ClientAnswer, ThatIsNotHttpIsRefused) {
  for (const char* answer : {"SSH-2.0-OpenSSH\r\n\r\n",
                             "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
                             "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
                             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n"}) {
    ScriptedServer server({answers({answer})});
    server.run([&]() -> asio::awaitable<void> {
      auto reply = co_await server.client.request(server.endpoint, "GET", "/", {}, "", 5s);
      EXPECT_FALSE(reply.ok()) << answer;
      if (!reply.ok()) EXPECT_EQ(reply.error().code, ErrorCode::engine_protocol) << answer;
    }());
  }
}

TEST(ClientAnswer, CutShortIsAnError) {
  for (const char* answer : {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
                             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n"}) {
    ScriptedServer server({answers({answer})});
    server.run([&]() -> asio::awaitable<void> {
      auto call = server.client.call(server.endpoint, {5s});
      auto sent = co_await call->send(kGet, "");
      EXPECT_TRUE(sent.ok());
      auto head = co_await call->read_head();
      Result<std::string> body = std::string();
      if (head.ok()) body = co_await read_body(*call);
      const bool failed = !head.ok() || !body.ok();
      EXPECT_TRUE(failed) << answer;
      if (!failed) co_return;
      const Error& error = head.ok() ? body.error() : head.error();
      EXPECT_EQ(error.code, ErrorCode::instance_crashed) << error.message;
      EXPECT_EQ(call->progress(), *answer == 0 ? Progress::sent : Progress::first_byte);
    }());
  }
}

// ---- the pool

TEST(ClientPool, NoticesConnectionThatClosedWhileIdle) {
  ScriptedServer server({answers({kOk}), answers({kOk})});
  server.run([&]() -> asio::awaitable<void> {
    auto reply = co_await server.client.request(server.endpoint, "POST", "/", {}, "x", 5s);
    EXPECT_TRUE(reply.ok());
    co_await eventually(server.loop, [&] { return server.ended == 1; });
    reply = co_await server.client.request(server.endpoint, "POST", "/", {}, "x", 5s);
    EXPECT_TRUE(reply.ok());
    EXPECT_EQ(server.accepted, 2u);
  }());
}

TEST(ClientPool, ReplacesConnectionThatClosesInTheRequestsFace) {
  // The second request is read and not answered: what a peer's own idle timeout looks like.
  std::string again;
  ScriptedServer server({answers({kOk, ""}), [&](Peer& peer) -> asio::awaitable<void> {
                           again = co_await receive(peer);
                           co_await transmit(peer, kOk);
                         }});
  server.run([&]() -> asio::awaitable<void> {
    auto reply = co_await server.client.request(server.endpoint, "GET", "/1", {}, "", 5s);
    reply = co_await server.client.request(server.endpoint, "POST", "/2", {}, "body", 5s);
    EXPECT_TRUE(reply.ok()) << reply.error().message;
    EXPECT_TRUE(again.starts_with("POST /2 HTTP/1.1\r\n") && again.ends_with("\r\n\r\nbody"))
        << again;
  }());
}

TEST(ClientPool, ReplacesOnlyOnce) {
  ScriptedServer server({answers({kOk, ""}), answers({""}), answers({kOk})});
  server.run([&]() -> asio::awaitable<void> {
    auto reply = co_await server.client.request(server.endpoint, "GET", "/1", {}, "", 5s);
    auto call = server.client.call(server.endpoint, {5s});
    auto sent = co_await call->send(kGet, "");
    auto head = co_await call->read_head();
    EXPECT_FALSE(head.ok());
    EXPECT_EQ(call->progress(), Progress::sent);
    EXPECT_EQ(server.accepted, 2u);
  }());
}

TEST(ClientPool, NeverRepeatsOnFreshConnection) {
  ScriptedServer server({answers({""}), answers({kOk})});
  server.run([&]() -> asio::awaitable<void> {
    auto call = server.client.call(server.endpoint, {5s});
    auto sent = co_await call->send(kGet, "");
    auto head = co_await call->read_head();
    EXPECT_FALSE(head.ok());
    EXPECT_EQ(server.accepted, 1u) << "a request that may have crashed the peer";
  }());
}

TEST(ClientPool, NeverRepeatsBodyThatStreamed) {
  ScriptedServer server({[](Peer& peer) -> asio::awaitable<void> {
                           co_await receive(peer);
                           co_await transmit(peer, kOk);
                           std::string request;
                           while (!request.ends_with("abcd")) {
                             const std::string more = co_await receive(peer);
                             if (more.empty()) break;
                             request += more;
                           }
                         },
                         answers({kOk})});
  server.run([&]() -> asio::awaitable<void> {
    auto reply = co_await server.client.request(server.endpoint, "GET", "/1", {}, "", 5s);
    auto call = server.client.call(server.endpoint, {5s});
    auto sent = co_await call->send("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n", "ab");
    sent = co_await call->send_more("cd");
    auto head = co_await call->read_head();
    EXPECT_FALSE(head.ok());
    EXPECT_EQ(server.accepted, 1u);
  }());
}

TEST(ClientPool, TakesConnectionBackOnlyWhenAnswerEnded) {
  const std::string chunked =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
  for (const std::string& answer : {kOk, chunked}) {
    ScriptedServer server({answers_and_stays({answer, answer})});
    server.run([&]() -> asio::awaitable<void> {
      for (int i = 0; i < 2; ++i) {
        auto call = server.client.call(server.endpoint, {5s});
        auto sent = co_await call->send(kGet, "");
        auto head = co_await call->read_head();
        EXPECT_TRUE(head.ok());
        auto piece = co_await call->read_some();
        EXPECT_EQ(piece.value(), "ok");
        // The caller leaves without asking for the end, which is here already.
      }
      EXPECT_EQ(server.accepted, 1u);
    }());
  }
}

TEST(ClientPool, AFreshCallUsesNoPooledConnection) {
  ScriptedServer server({answers_and_stays({kOk}), answers({kOk})});
  server.run([&]() -> asio::awaitable<void> {
    auto reply = co_await server.client.request(server.endpoint, "GET", "/", {}, "", 5s);
    EXPECT_TRUE(reply.ok());
    auto call = server.client.call(server.endpoint, {.read_timeout = 5s, .fresh = true});
    auto sent = co_await call->send(kGet, "");
    auto head = co_await call->read_head();
    EXPECT_TRUE(head.ok());
    EXPECT_EQ(server.accepted, 2u);
  }());
}

TEST(ClientPool, DropsAConnectionAsSoonAsItsPeerClosesIt) {
  const auto open_sockets = [] {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code ignored;
      count += std::filesystem::read_symlink(entry.path(), ignored).string().starts_with("socket:");
    }
    return count;
  };
  ScriptedServer server({answers({kOk})});
  server.run([&]() -> asio::awaitable<void> {
    const std::size_t before = open_sockets();
    auto reply = co_await server.client.request(server.endpoint, "GET", "/", {}, "", 5s);
    EXPECT_TRUE(reply.ok());
    const bool gone = co_await eventually(server.loop, [&] { return open_sockets() < before; });
    EXPECT_TRUE(gone);  // the listening socket as well, after its last script
  }());
}

TEST(ClientPool, ReadsTheAnswerOfAPeerThatRefusesEarlyInsteadOfSendingAgain) {
  const std::string refusal = "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
  ScriptedServer server({[&](Peer& peer) -> asio::awaitable<void> {
                           co_await receive(peer);
                           co_await transmit(peer, kOk);
                           co_await receive(peer);  // a part of the second request
                           co_await transmit(peer, refusal);
                         },
                         answers({kOk})});
  server.run([&]() -> asio::awaitable<void> {
    auto reply = co_await server.client.request(server.endpoint, "GET", "/1", {}, "", 5s);
    EXPECT_TRUE(reply.ok());
    const std::string large(8 << 20, 'x');
    auto call = server.client.call(server.endpoint, {5s});
    auto sent = co_await call->send("POST / HTTP/1.1\r\nContent-Length: 8388608\r\n\r\n", large);
    auto head = co_await call->read_head();
    EXPECT_EQ(head.ok() ? head->status : 0, 413);
    EXPECT_EQ(server.accepted, 1u);
  }());
}

TEST(ClientPool, ClosesConnectionOfUnfinishedAnswer) {
  ScriptedServer server(
      {answers_and_stays({"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart"})});
  server.run([&]() -> asio::awaitable<void> {
    {
      auto call = server.client.call(server.endpoint, {5s});
      auto sent = co_await call->send(kGet, "");
      auto head = co_await call->read_head();
      EXPECT_TRUE(head.ok());
    }
    const bool told = co_await eventually(server.loop, [&] { return server.ended == 1; });
    EXPECT_TRUE(told) << "the engine sees that its client left";
  }());
}

TEST(ClientPool, KeepsNoConnectionThatPeerCloses) {
  for (const char* answer : {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                             "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
                             "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n"}) {
    ScriptedServer server({answers_and_stays({answer})});
    server.run([&]() -> asio::awaitable<void> {
      auto reply = co_await server.client.request(server.endpoint, "GET", "/", {}, "", 5s);
      EXPECT_TRUE(reply.ok());
      const bool closed = co_await eventually(server.loop, [&] { return server.ended == 1; });
      EXPECT_TRUE(closed) << answer;
    }());
  }
}

TEST(ClientPool, CloseIdleAlsoRetiresConnectionsInUse) {
  ScriptedServer server({answers_and_stays({kOk}), answers_and_stays({kOk})});
  server.run([&]() -> asio::awaitable<void> {
    auto busy = server.client.call(server.endpoint, {5s});
    auto sent = co_await busy->send(kGet, "");
    auto reply = co_await server.client.request(server.endpoint, "GET", "/", {}, "", 5s);
    EXPECT_TRUE(reply.ok());
    server.client.close_idle(server.endpoint);
    bool closed = co_await eventually(server.loop, [&] { return server.ended == 1; });
    EXPECT_TRUE(closed);
    auto head = co_await busy->read_head();
    const auto body = co_await read_body(*busy);
    EXPECT_TRUE(body.ok());
    busy.reset();
    closed = co_await eventually(server.loop, [&] { return server.ended == 2; });
    EXPECT_TRUE(closed);
  }());
}

TEST(ClientPool, ClosesConnectionAfterIdleTimeout) {
  ScriptedServer server({answers_and_stays({kOk})});
  Client client(server.loop, {.idle_timeout = 30ms});
  server.run([&]() -> asio::awaitable<void> {
    auto reply = co_await client.request(server.endpoint, "GET", "/", {}, "", 5s);
    EXPECT_TRUE(reply.ok());
    const bool closed = co_await eventually(server.loop, [&] { return server.ended == 1; });
    EXPECT_TRUE(closed);
  }());
}

TEST(ClientPool, DoesNotKeepLoopRunning) {
  TestServer server(echo);
  asio::io_context loop{1};
  Client client(loop);
  std::thread serving([&] { server.loop.run_for(3s); });
  bool ok = false;
  asio::co_spawn(
      loop,
      [&]() -> asio::awaitable<void> {
        auto reply = co_await client.request(server.endpoint, "GET", "/", {}, "", 5s);
        ok = reply.ok();
      },
      asio::detached);
  const TimePoint begun = Clock::now();
  loop.run();
  EXPECT_TRUE(ok);
  EXPECT_LT(Clock::now() - begun, 2s) << "an idle connection holds up a program that is done";
  server.loop.stop();
  serving.join();
}

// ---- time and cancellation

asio::awaitable<void> stays_silent(Peer& peer) {
  for (;;) {
    const std::string bytes = co_await receive(peer);
    if (bytes.empty()) co_return;
  }
}

TEST(ClientCall, EndsWhenPeerIsSilent) {
  ScriptedServer server({stays_silent});
  server.run([&]() -> asio::awaitable<void> {
    auto call = server.client.call(server.endpoint, {40ms});
    auto sent = co_await call->send(kGet, "");
    auto head = co_await call->read_head();
    EXPECT_FALSE(head.ok());
    if (head.ok()) co_return;
    EXPECT_EQ(head.error().code, ErrorCode::engine_timeout);
    EXPECT_EQ(call->progress(), Progress::sent);
  }());
}

TEST(ClientCall, EndsWhenPeerReadsNothing) {
  ScriptedServer server({[&](Peer&) -> asio::awaitable<void> { co_await pause(server.loop, 2s); }});
  server.run([&]() -> asio::awaitable<void> {
    auto call = server.client.call(server.endpoint, {40ms});
    const std::string body(8 << 20, 'x');
    auto sent = co_await call->send("POST / HTTP/1.1\r\nContent-Length: 8388608\r\n\r\n", body);
    EXPECT_FALSE(sent.ok());
    if (!sent.ok()) EXPECT_EQ(sent.error().code, ErrorCode::engine_timeout);
  }());
}

TEST(ClientRequest, IsBoundedAsWhole) {
  ScriptedServer server({[&](Peer& peer) -> asio::awaitable<void> {
    co_await receive(peer);
    co_await transmit(peer, "HTTP/1.1 200 OK\r\n\r\n");
    for (int i = 0; i < 100; ++i) {
      co_await transmit(peer, "drip");
      co_await pause(server.loop, 10ms);
    }
  }});
  server.run([&]() -> asio::awaitable<void> {
    const TimePoint begun = Clock::now();
    auto reply = co_await server.client.request(server.endpoint, "GET", "/", {}, "", 60ms);
    EXPECT_FALSE(reply.ok());
    if (!reply.ok()) EXPECT_EQ(reply.error().code, ErrorCode::engine_timeout);
    EXPECT_LT(Clock::now() - begun, 500ms);
  }());
}

TEST(ClientRequest, BoundsAnswer) {
  ScriptedServer server({answers({kOk}), answers({kOk})});
  server.run([&]() -> asio::awaitable<void> {
    auto reply = co_await server.client.request(server.endpoint, "GET", "/", {}, "", 5s, 1_B);
    EXPECT_FALSE(reply.ok());
    if (!reply.ok()) EXPECT_EQ(reply.error().code, ErrorCode::body_too_large);
  }());
}

TEST(ClientCall, CancelEndsWaitAndTellsPeer) {
  ScriptedServer server({stays_silent});
  server.run([&]() -> asio::awaitable<void> {
    auto call = server.client.call(server.endpoint, {60s});
    auto sent = co_await call->send(kGet, "");
    EXPECT_TRUE(sent.ok());
    asio::post(server.loop, [&] { call->cancel(); });
    auto head = co_await call->read_head();
    EXPECT_FALSE(head.ok());
    if (!head.ok()) EXPECT_EQ(head.error().code, ErrorCode::cancelled);
    const bool told = co_await eventually(server.loop, [&] { return server.ended == 1; });
    EXPECT_TRUE(told);
  }());
}

TEST(ClientCall, CancelBeforeSendRefusesIt) {
  ScriptedServer server({});
  server.run([&]() -> asio::awaitable<void> {
    auto call = server.client.call(server.endpoint, {60s});
    call->cancel();
    auto sent = co_await call->send(kGet, "");
    EXPECT_FALSE(sent.ok());
    if (!sent.ok()) EXPECT_EQ(sent.error().code, ErrorCode::cancelled);
    EXPECT_EQ(call->progress(), Progress::nothing_sent);
  }());
}

TEST(ClientCall, GivesUpOnPeerThatAcceptsNothing) {
  TempFolder folder;
  const Endpoint endpoint = Endpoint::unix_at((folder.path() / "full.sock").string());
  const auto address = SocketAddress::of(endpoint);
  Fd listener(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(::bind(listener.get(), address->get(), address->size()), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  asio::io_context loop{1};
  RawClient first(loop, endpoint);  // fills the backlog
  Client client(loop, {.connect_timeout = 40ms});
  run(loop, [&]() -> asio::awaitable<void> {
    auto call = client.call(endpoint, {5s});
    auto sent = co_await call->send(kGet, "");
    EXPECT_FALSE(sent.ok());
    if (sent.ok()) co_return;
    EXPECT_EQ(sent.error().code, ErrorCode::daemon_unreachable) << sent.error().message;
    EXPECT_EQ(call->progress(), Progress::nothing_sent);
  }());
}

// ---- bodies and upgrades

TEST(ClientCall, StreamsChunkedBody) {
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    Client client(server.loop);
    auto call = client.call(server.endpoint, {5s});
    auto sent = co_await call->send(
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", encode_chunk("ab"));
    EXPECT_TRUE(sent.ok());
    for (const char* part : {"cd", ""}) {
      sent = co_await call->send_more(encode_chunk(part));
      EXPECT_TRUE(sent.ok());
    }
    auto head = co_await call->read_head();
    EXPECT_TRUE(head.ok());
    const auto body = co_await read_body(*call);
    EXPECT_EQ(body.value(), "POST /x abcd");
  }());
}

TEST(ClientCall, CarriesLargeBodiesBothWays) {
  TestServer server(echo);
  server.run([&]() -> asio::awaitable<void> {
    Client client(server.loop);
    const std::string body(8 << 20, 'x');
    for (int i = 0; i < 2; ++i) {
      auto reply = co_await client.request(server.endpoint, "POST", "/", {}, body, 20s);
      EXPECT_TRUE(reply.ok());
      if (reply.ok()) EXPECT_EQ(reply->body, "POST / " + body);
    }
    EXPECT_EQ(server.server->connections(), 1u);
  }());
}

TEST(ClientCall, GivesEarlyAnswerThoughSendingFailed) {
  ScriptedServer server({answers({"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n"})});
  server.run([&]() -> asio::awaitable<void> {
    auto call = server.client.call(server.endpoint, {5s});
    const std::string body(8 << 20, 'x');
    auto sent = co_await call->send("POST / HTTP/1.1\r\nContent-Length: 8388608\r\n\r\n", body);
    EXPECT_FALSE(sent.ok());
    auto head = co_await call->read_head();
    EXPECT_TRUE(head.ok());
    if (head.ok()) EXPECT_EQ(head->status, 413);
  }());
}

TEST(ClientCall, ReleasesSocketAfterUpgrade) {
  ScriptedServer server({[](Peer& peer) -> asio::awaitable<void> {
    co_await receive(peer);
    co_await transmit(peer, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n\r\nearly");
    const std::string said = co_await receive(peer);
    EXPECT_EQ(said, "raw");
  }});
  server.run([&]() -> asio::awaitable<void> {
    auto call = server.client.call(server.endpoint, {5s});
    auto sent = co_await call->send(kGet, "");
    auto head = co_await call->read_head();
    EXPECT_TRUE(head.ok());
    if (!head.ok()) co_return;
    EXPECT_EQ(head->status, 101);
    auto [socket, read_ahead] = call->release_socket();
    call.reset();
    const Fd owned(socket);
    EXPECT_EQ(read_ahead, "early");
    EXPECT_EQ(::send(owned.get(), "raw", 3, 0), 3);
    const bool done = co_await eventually(server.loop, [&] { return server.ended == 1; });
    EXPECT_TRUE(done);
  }());
}

}  // namespace
}  // namespace omni::http
