#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "cli/command_test.h"
#include "cli/golden.h"

namespace omni::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

using Commands = CommandTest;

// ---- what people see

TEST_F(Commands, ShowTables) {
  start_daemon();
  expect_golden("ps.txt", omni({"ps"}).out);
  expect_golden("ps_pss.txt", omni({"ps", "--pss"}).out);
  expect_golden("models.txt", omni({"models"}).out);
  expect_golden("models_quiet.txt", omni({"models", "-q"}).out);
}

TEST_F(Commands, ShowTheDaemonsJsonOnOneLine) {
  start_daemon();
  expect_golden("ps.json", omni({"ps", "--json"}).out);
  expect_golden("models.json", omni({"models", "--json"}).out);
  expect_golden("status.json", omni({"status", "--json"}).out);
  expect_golden("load.json", omni({"load", "minilm", "--json"}).out);
  EXPECT_EQ(omni({"stop", "minilm", "--json"}).exit_code, 0);
  EXPECT_EQ(run_plain({"version", "--json"}).out, "{\"version\":\"" OMNI_VERSION "\"}\n");
}

TEST_F(Commands, ShowTheDaemonAndItsDevices) {
  start_daemon();
  const Outcome outcome = omni({"status"});
  EXPECT_EQ(outcome.out, "omni 0.1.0, pid 4711, up 90m, 21 MiB resident\nadmin socket " +
                             daemon_.socket() +
                             "\nlistens on 127.0.0.1:8484\nlistens on [::1]:8484\n"
                             "device host: 92 MiB granted of 480 MiB\n");
}

TEST_F(Commands, HelpOfEachCommandIsKnown) {
  std::string text = run_plain({"--help"}).out;
  for (const char* command :
       {"serve", "status", "ps", "models", "explain", "run", "load", "stop", "logs", "events",
        "reload", "shutdown", "check", "gc", "key", "doctor", "version", "completion"}) {
    const Outcome outcome = run_plain({command, "--help"});
    EXPECT_EQ(outcome.exit_code, 0);
    text += fmt::format("\n$ omni {} --help\n{}", command, outcome.out);
  }
  expect_golden("help.txt", text);
}

TEST_F(Commands, CutTablesToTheTerminal) {
  start_daemon();
  int master = -1;
  int terminal = -1;
  winsize size{.ws_row = 24, .ws_col = 100};
  ASSERT_EQ(::openpty(&master, &terminal, nullptr, nullptr, &size), 0);
  const Fd master_end(master);
  const Fd terminal_end(terminal);
  ASSERT_EQ(run_arguments({"models", "--socket", daemon_.socket()}, {.out = terminal}), 0);
  char buffer[4096];
  const ssize_t n = ::read(master, buffer, sizeof buffer);
  ASSERT_GT(n, 0);
  const std::string_view text(buffer, static_cast<std::size_t>(n));
  EXPECT_EQ(text.find("text-embedding-3-small"), text.npos);
  EXPECT_THAT(text, HasSubstr("…\r\n"));
}

// ---- verbs

TEST_F(Commands, LoadAndStopSayWhatCameOfIt) {
  start_daemon();
  EXPECT_THAT(omni({"load", "text-embedding-3-small", "qwen"}).out,
              testing::MatchesRegex("minilm: resident after [0-9.]+s\nqwen: resident after .*s\n"));
  EXPECT_EQ(omni({"stop", "minilm"}).out, "minilm: stopped\n");
  EXPECT_THAT(daemon_.node().history,
              testing::ElementsAre("load minilm", "load qwen", "stop minilm"));
}

TEST_F(Commands, ExplainSaysWhyAModelIsNotThere) {
  daemon_.node().explanation = {.state = "stopped",
                                .reason = "victims_drain",
                                .sentence = "model \"qwen\" starts when \"minilm\" has left",
                                .others = {"minilm"},
                                .waiting = 3,
                                .oldest_wait_seconds = 2.1,
                                .need_bytes = 700 << 20,
                                .need_source = "profile",
                                .device = "host",
                                .budget_bytes = 480 << 20,
                                .granted_bytes = 92 << 20,
                                .free_bytes = 388 << 20,
                                .requests_per_second = 0.025,
                                .restart_seconds = 2.5,
                                .victim_rank = 2};
  start_daemon();
  EXPECT_EQ(omni({"explain", "qwen"}).out,
            "qwen: stopped\nmodel \"qwen\" starts when \"minilm\" has left\n"
            "waiting  3 requests, the oldest for 2.1s\n"
            "needs    700 MiB (as measured)\n"
            "device   host: 92 MiB of 480 MiB granted, 0 B held for a load, 388 MiB free\n"
            "expected one request in 40s; to have it back takes 2.5s\n"
            "victim   number 2 when another needs room\n");
}

TEST_F(Commands, ReloadSaysThatNothingHasChanged) {
  start_daemon();
  EXPECT_EQ(omni({"reload"}).out, "nothing has changed\n");
}

TEST_F(Commands, ReloadSaysWhatHasChanged) {
  daemon_.node().reload_report = {
      .added = {"ocr", "tts"}, .changed = {"minilm"}, .unchanged = 3, .at_next_start = {"listen"}};
  start_daemon();
  EXPECT_EQ(omni({"reload"}).out,
            "added: ocr tts\nchanged: minilm\ntakes effect at the next start: listen\n");
}

TEST_F(Commands, ShutdownReachesTheDaemon) {
  start_daemon();
  EXPECT_EQ(omni({"shutdown"}).exit_code, 0);
  EXPECT_EQ(omni({"events"}).exit_code, 69) << "ends when the daemon stops";
}

// ---- errors

TEST_F(Commands, ErrorsHaveTheExitCodeOfTheirTable) {
  daemon_.node().failure = Error{ErrorCode::out_of_memory, "no room for minilm"};
  start_daemon();
  const Outcome full = omni({"load", "minilm"});
  EXPECT_EQ(full.exit_code, error_info(ErrorCode::out_of_memory).exit_code);
  EXPECT_EQ(full.err, "omni: no room for minilm\n");
  EXPECT_EQ(full.out, "");
  const Outcome unknown = omni({"load", "minilmm"});
  EXPECT_EQ(unknown.exit_code, 66);
  EXPECT_EQ(unknown.err, "omni: there is no model \"minilmm\"; did you mean \"minilm\"?\n");
}

TEST_F(Commands, WrongArgumentsAreUsageErrors) {
  EXPECT_EQ(run_plain({}).exit_code, 64);
  const Outcome mistyped = run_plain({"modles"});
  EXPECT_EQ(mistyped.exit_code, 64);
  EXPECT_EQ(mistyped.err, "omni: there is no command \"modles\": did you mean `omni models`?\n");
  const Outcome flag = run_plain({"ps", "--bad"});
  EXPECT_EQ(flag.exit_code, 64);
  EXPECT_THAT(flag.err, StartsWith("omni: "));
  EXPECT_THAT(flag.err, HasSubstr("--bad"));
  EXPECT_EQ(run_plain({"load"}).exit_code, 64);
  EXPECT_EQ(run_plain({"logs", "m", "-n", "-1"}).exit_code, 64);
  EXPECT_EQ(run_plain({"serve", "--log-level", "loud"}).exit_code, 64);
}

TEST_F(Commands, SayWhereNoDaemonAnswered) {
  const Outcome by_socket = omni({"ps"});
  EXPECT_EQ(by_socket.exit_code, 69);
  EXPECT_THAT(by_socket.err, HasSubstr("no daemon answers at " + daemon_.socket()));
  EXPECT_THAT(by_socket.err, HasSubstr("`omni serve`"));
  const Outcome too_long = run_plain({"ps", "--socket", "/tmp/" + std::string(200, 'x')});
  EXPECT_EQ(too_long.exit_code, 64);
}

TEST_F(Commands, FindTheDaemonByRootAndByEnvironment) {
  start_daemon();
  EXPECT_EQ(run_plain({"ps", "--root", folder_.path()}).exit_code, 0);
  EXPECT_EQ(run_plain({"--root", folder_.path(), "ps"}).exit_code, 0);
  EXPECT_EQ(run_plain({"ps", "--root", ""}).exit_code, 64);
  ::setenv("OMNI_SOCKET", daemon_.socket().c_str(), 1);
  EXPECT_EQ(run_plain({"ps"}).exit_code, 0);
  EXPECT_EQ(run_plain({"ps", "--socket", "/nonexistent"}).exit_code, 69);
  ::unsetenv("OMNI_SOCKET");
}

TEST_F(Commands, FindTheUsersDaemonWithoutBeingTold) {
  if (::geteuid() == 0) GTEST_SKIP() << "root's daemon is the system's";
  start_daemon();
  std::filesystem::create_symlink(folder_.path() / "run", folder_.path() / "omni");
  ::setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1);
  EXPECT_EQ(run_plain({"ps"}).exit_code, 0);
  ::unsetenv("XDG_RUNTIME_DIR");
}

TEST_F(Commands, AReaderThatLeftIsNoError) {
  start_daemon();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const Fd out(ends[1]);
  const Fd err = file_in_memory();
  EXPECT_EQ(
      run_arguments({"ps", "--socket", daemon_.socket()}, {.out = out.get(), .err = err.get()}),
      128 + SIGPIPE);
  EXPECT_EQ(content_of(err), "");
}

// ---- logs and events

TEST_F(Commands, LogsPrintTheLastLines) {
  daemon_.node().log_file = folder_.path() / "minilm.log";
  std::ofstream(daemon_.node().log_file) << "one\ntwo\nthree\n";
  start_daemon();
  EXPECT_EQ(omni({"logs", "minilm", "-n", "2"}).out, "two\nthree\n");
  EXPECT_EQ(omni({"logs", "minilm"}).out, "one\ntwo\nthree\n");
}

// Reads from a pipe until the text has come.
void wait_for_output(int fd, std::string_view text) {
  std::string seen;
  char c;
  while (seen.find(text) == seen.npos && ::read(fd, &c, 1) == 1) seen += c;
  EXPECT_THAT(seen, HasSubstr(text));
}

TEST_F(Commands, FollowedLogsEndByCtrlC) {
  daemon_.node().log_file = folder_.path() / "minilm.log";
  std::ofstream(daemon_.node().log_file) << "one\n";
  start_daemon();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd reading(ends[0]);
  const Fd out(ends[1]);
  const Fd err = file_in_memory();
  std::thread person([&] {
    wait_for_output(reading.get(), "one\n");
    std::ofstream(daemon_.node().log_file, std::ios::app) << "two\n";
    wait_for_output(reading.get(), "two\n");
    ::kill(::getpid(), SIGINT);
  });
  EXPECT_EQ(run_arguments({"logs", "-f", "minilm", "--socket", daemon_.socket()},
                          {.out = out.get(), .err = err.get()}),
            130);
  person.join();
  EXPECT_EQ(content_of(err), "");
}

TEST_F(Commands, EventsAreLinesUntilTheDaemonStops) {
  daemon_.node().add_event({{"time", "2026-01-02T03:04:05Z"},
                            {"type", "instance_state"},
                            {"model", "minilm"},
                            {"instance", "12"},
                            {"state", "resident"}});
  start_daemon();
  for (const bool as_json : {false, true}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const Fd reading(ends[0]);
    const Fd out(ends[1]);
    std::thread person([&] {
      wait_for_output(reading.get(), "resident");
      ::kill(::getpid(), SIGINT);
    });
    std::vector<std::string> arguments{"events", "--socket", daemon_.socket()};
    if (as_json) arguments.push_back("--json");
    EXPECT_EQ(run_arguments(arguments, {.out = out.get()}), 130);
    person.join();
  }
  daemon_.post([&] { daemon_.node().shut_down(); });
  const Outcome stopped = omni({"events"});
  EXPECT_EQ(stopped.exit_code, 69);
}

// ---- run

TEST_F(Commands, RunStreamsAChat) {
  daemon_.replies["/v1/chat/completions"] = {
      .content_type = "text/event-stream",
      .body =
          "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n"
          "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n"
          ": comment\n\n"
          "data: {\"choices\":[{\"delta\":{\"content\":\"lo\"}}]}\n\n"
          "data: {\"choices\":[],\"usage\":{}}\n\ndata: [DONE]\n\n"};
  start_daemon();
  const Outcome outcome = omni({"run", "qwen", "hi", "-s", "be brief", "--set", "top_p=1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "Hello\n");
  EXPECT_EQ(daemon_.received().at(0).body,
            R"({"model":"qwen","messages":[{"role":"system","content":"be brief"},)"
            R"({"role":"user","content":"hi"}],"stream":true,"top_p":1})");
}

TEST_F(Commands, RunReadsItsPromptFromInputOrFile) {
  daemon_.replies["/v1/embeddings"] = {.body = R"({"data":[{"embedding":[0.5,-1]}],"usage":{}})"};
  std::ofstream(folder_.path() / "prompt.txt") << "from file";
  start_daemon();
  EXPECT_EQ(omni({"run", "minilm"}, "piped").out, "[0.5,-1]\n");
  EXPECT_EQ(omni({"run", "minilm", "-"}, "dash").exit_code, 0);
  EXPECT_EQ(omni({"run", "minilm", "--file", folder_.path() / "prompt.txt"}).exit_code, 0);
  EXPECT_EQ(omni({"run", "minilm", "words", "--json"}).out,
            R"({"data":[{"embedding":[0.5,-1]}],"usage":{}})"
            "\n");
  std::vector<std::string> inputs;
  for (const FakeDaemon::Received& received : daemon_.received()) inputs.push_back(received.body);
  EXPECT_THAT(inputs, testing::ElementsAre(HasSubstr("piped"), HasSubstr("dash"),
                                           HasSubstr("from file"), HasSubstr("words")));
}

TEST_F(Commands, RunSendsAFileToSpeechToText) {
  daemon_.replies["/v1/audio/transcriptions"] = {.body = R"({"text":"hello world"})"};
  const std::filesystem::path audio = folder_.path() / "hello.wav";
  std::ofstream(audio) << "RIFF";
  start_daemon();
  const Outcome outcome = omni({"run", "whisper", audio});
  EXPECT_EQ(outcome.out, "hello world\n") << outcome.err;
  EXPECT_THAT(daemon_.received().at(0).body, HasSubstr("filename=\"hello.wav\""));
  EXPECT_EQ(omni({"run", "whisper", "/nonexistent.wav"}).exit_code, 74);
}

TEST_F(Commands, RunWritesSpeechToAFileOrAPipeButNotToATerminal) {
  const std::string speech("RIFF\0\1\2", 7);
  daemon_.replies["/v1/audio/speech"] = {.content_type = "audio/wav", .body = speech};
  start_daemon();
  const std::filesystem::path file = folder_.path() / "out.wav";
  EXPECT_EQ(omni({"run", "kokoro", "hi", "-o", file}).out, "");
  std::ostringstream written;
  written << std::ifstream(file, std::ios::binary).rdbuf();
  EXPECT_EQ(written.str(), speech);
  EXPECT_EQ(omni({"run", "kokoro", "hi"}).out, speech);

  int master = -1;
  int terminal = -1;
  ASSERT_EQ(::openpty(&master, &terminal, nullptr, nullptr, nullptr), 0);
  const Fd master_end(master);
  const Fd terminal_end(terminal);
  const Fd err = file_in_memory();
  EXPECT_EQ(run_arguments({"run", "kokoro", "hi", "--socket", daemon_.socket()},
                          {.out = terminal, .err = err.get()}),
            64);
  EXPECT_THAT(content_of(err), HasSubstr("--output"));
  EXPECT_EQ(daemon_.received().size(), 2u) << "refused before the work was done";
}

TEST_F(Commands, RunSendsJsonOrAFileToOtherTasks) {
  daemon_.replies["/ai/run/resize"] = {.body = R"({"width":8})"};
  const std::filesystem::path image = folder_.path() / "cat.png";
  std::ofstream(image) << "PNG";
  start_daemon();
  EXPECT_EQ(omni({"run", "resize", R"({"a":1})"}).out, "{\"width\":8}\n");
  EXPECT_EQ(omni({"run", "resize", image}).exit_code, 0);
  const std::vector<FakeDaemon::Received> received = daemon_.received();
  EXPECT_EQ(received.at(0).content_type, "application/json");
  EXPECT_EQ(received.at(1).content_type, "image/png");
  EXPECT_EQ(received.at(1).body, "PNG");
}

TEST_F(Commands, RunReportsErrorsBeforeAndWithinAStream) {
  daemon_.replies["/v1/chat/completions"] = {
      .status = 503, .body = R"({"error":{"message":"queue is full","code":"queue_full"}})"};
  daemon_.replies["/v1/embeddings"] = {.status = 500, .content_type = "text/html", .body = "<p>"};
  start_daemon();
  const Outcome full = omni({"run", "qwen", "hi"});
  EXPECT_EQ(full.exit_code, 75);
  EXPECT_EQ(full.err, "omni: queue is full\n");
  EXPECT_EQ(omni({"run", "minilm", "hi"}).exit_code, 76);
}

TEST_F(Commands, RunDoesNotTakeABrokenStreamForAWholeOne) {
  const std::string begin = "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n";
  for (const auto& [rest, cut, exit_code] :
       {std::tuple("data: {\"error\":{\"message\":\"crashed\",\"code\":\"instance_crashed\"}}\n\n",
                   false, 75),
        std::tuple("", false, 76), std::tuple("", true, 69)}) {
    TestFolder folder;
    FakeDaemon daemon(folder.path());
    daemon.replies["/v1/chat/completions"] = {
        .content_type = "text/event-stream", .body = begin + rest, .cut = cut};
    daemon.start();
    const Outcome outcome = run_plain({"run", "qwen", "hi", "--socket", daemon.socket()});
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    EXPECT_EQ(outcome.out, "Hel");
  }
}

TEST_F(Commands, RunRemovesAFileThatBrokeOff) {
  daemon_.replies["/v1/audio/speech"] = {.content_type = "audio/wav", .body = "RIFF", .cut = true};
  start_daemon();
  const std::filesystem::path file = folder_.path() / "out.wav";
  EXPECT_EQ(omni({"run", "kokoro", "hi", "-o", file}).exit_code, 69);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(Commands, RunNeedsAnInput) {
  start_daemon();
  int master = -1;
  int terminal = -1;
  ASSERT_EQ(::openpty(&master, &terminal, nullptr, nullptr, nullptr), 0);
  const Fd master_end(master);
  const Fd terminal_end(terminal);
  const Fd err = file_in_memory();
  EXPECT_EQ(run_arguments({"run", "whisper", "--socket", daemon_.socket()},
                          {.in = terminal, .out = err.get(), .err = err.get()}),
            64);
  EXPECT_EQ(content_of(err),
            "omni: whisper does speech-to-text: give it a file as an argument, or pipe it in\n");
}

}  // namespace
}  // namespace omni::cli
