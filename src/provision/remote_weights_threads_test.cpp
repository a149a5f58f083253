// Weights from a web server and a hub, with a real curl and servers that misbehave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include "provision/hub_test_support.h"
#include "provision/provision_test_support.h"
#include "provision/provisioner.h"
#include "provision/use_records.h"

namespace omni {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::size_t kSize = 300'000;

class RemoteWeights : public LoopTest {
 protected:
  RemoteWeights() {
    ::setenv("HF_ENDPOINT", hub_.endpoint().c_str(), 1);
    ::setenv("HOME", folder_.path().c_str(), 1);
    for (const char* name : {"HF_TOKEN", "HF_TOKEN_PATH", "HF_HOME"}) ::unsetenv(name);
    limits_.first_pause = 1ms;
    limits_.longest_pause = 2ms;
    limits_.tries = 3;
    limits_.stall = 1s;
    limits_.report = 5ms;
    limits_.margin = 1_MiB;
    spec_.name = "m";
    spec_.dir = folder_.path() / "m";
    spec_.command.emplace();
    folder_.write("m/model.toml", "");
    restart();
  }

  // As a daemon that starts anew.
  void restart() { provisioner_.emplace(loop_, workers_, paths_, limits_); }
  void use(const std::string& source, const std::string& sha256 = "") {
    spec_.weights = {{.name = "w", .source = source, .sha256 = sha256}};
  }
  Result<Provisioned> provision() {
    return await(provisioner_->provision(
        spec_, [this](std::string_view line) { progress_.emplace_back(line); }));
  }
  // The digest of the weight's content, or the error.
  std::string get() {
    auto ready = provision();
    if (!ready.ok()) return ready.error().message;
    return sha256_of(read_file(ready->weights.at("w")).value());
  }
  std::filesystem::path stored(const std::string& content) const {
    const std::string digest = sha256_of(content);
    return paths_.state / "weights/sha256" / digest.substr(0, 2) / digest;
  }
  std::filesystem::path part(const std::string& content) const {
    return paths_.state / "weights/parts" / (sha256_of(content) + ".part");
  }
  std::int64_t bytes_sent() {
    std::int64_t sent = 0;
    for (const Seen& seen : hub_.downloads()) sent += seen.sent;
    return sent;
  }

  // Opens the file's gate when each of the models has said that it wants it.
  asio::awaitable<void> open_when_claimed(std::string file, std::vector<std::string> models) {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    for (const std::string& model : models) {
      while (!std::filesystem::exists(record_file(paths_.state, model))) {
        timer.expires_after(1ms);
        auto token = asio::use_awaitable;
        co_await timer.async_wait(token);
      }
    }
    hub_.open_gate(file);
  }

  TemporaryFolder folder_;
  FakeHub hub_;
  NodePaths paths_ = NodePaths::below(folder_.path() / "root");
  DownloadLimits limits_;
  std::optional<Provisioner> provisioner_;
  ModelSpec spec_;
  std::vector<std::string> progress_;
  const std::string content_ = content_of(kSize);
  const std::string digest_ = sha256_of(content_);
};

TEST_F(RemoteWeights, AFileOfTheHubIsStoredUnderTheDigestThatTheHubTells) {
  hub_.put("model.gguf", content_);
  use("hf:org/name/model.gguf");
  auto ready = provision();
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_EQ(ready->weights.at("w"), stored(content_));
  EXPECT_TRUE(read_file(stored(content_)).value() == content_);
  EXPECT_FALSE(std::filesystem::exists(part(content_)));
  EXPECT_THAT(hub_.log().at(1).path, HasSubstr("/resolve/c0ffee")) << "of the commit that was told";
}

TEST_F(RemoteWeights, ASmallFileIsCheckedByGitsDigest) {
  hub_.put("config.json", "{}\n", "small=1");
  use("hf:org/name/config.json");
  EXPECT_EQ(get(), sha256_of("{}\n"));
  EXPECT_TRUE(std::filesystem::exists(stored("{}\n")));
  hub_.put("other.json", "{ }\n", "small=1&wrong=1");
  use("hf:org/name/other.json");
  // The fake names the digest of what it should have sent.
  EXPECT_THAT(get(), HasSubstr("has git's digest"));
}

TEST_F(RemoteWeights, AnInterruptedDownloadGoesOnWhereItWas) {
  hub_.put("model.gguf", content_, "cut=100000");
  use("hf:org/name/model.gguf");
  EXPECT_EQ(get(), digest_);
  const auto downloads = hub_.downloads();
  ASSERT_THAT(downloads, SizeIs(3));
  EXPECT_EQ(downloads[1].range, "bytes=100000-");
  EXPECT_EQ(downloads[2].range, "bytes=200000-");
  EXPECT_THAT(downloads[1].if_range, Not(IsEmpty()));
  EXPECT_EQ(bytes_sent(), static_cast<std::int64_t>(kSize));
  EXPECT_THAT(progress_, Contains(HasSubstr("trying again in")));
}

TEST_F(RemoteWeights, APartOutlivesTheDaemon) {
  hub_.put("model.gguf", content_, "cut=100000");
  use("hf:org/name/model.gguf");
  limits_.tries = 1;
  restart();
  EXPECT_THAT(get(), HasSubstr("cannot download org/name/model.gguf at revision main: curl: (18)"));
  EXPECT_EQ(std::filesystem::file_size(part(content_)), 100'000U);
  restart();
  hub_.put("model.gguf", content_);
  EXPECT_EQ(get(), digest_);
  EXPECT_EQ(bytes_sent(), static_cast<std::int64_t>(kSize));
}

TEST_F(RemoteWeights, AWholePartIsOnlyChecked) {
  hub_.put("model.gguf", content_);
  use("hf:org/name/model.gguf");
  folder_.write(part(content_), content_);  // the daemon ended before it could check it
  EXPECT_EQ(get(), digest_);
  EXPECT_THAT(hub_.downloads(), IsEmpty());
}

TEST_F(RemoteWeights, AFileThatHasChangedOnTheServerStartsOver) {
  const std::string old = content_of(kSize, 2);
  use(hub_.plain("model.gguf"), sha256_of(content_));
  hub_.put("model.gguf", old, "cut=100000&cuts=1");
  // Changed as soon as the first piece is there.
  bool changed = false;
  auto ready = await(provisioner_->provision(spec_, [&](std::string_view line) {
    if (changed || line.find("trying again") == std::string_view::npos) return;
    changed = true;
    hub_.put("model.gguf", content_);
  }));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_TRUE(changed);
  EXPECT_TRUE(read_file(ready->weights.at("w")).value() == content_);
}

TEST_F(RemoteWeights, PiecesOfTwoFilesAreNoFile) {
  const std::string old = content_of(kSize, 2);
  use(hub_.plain("model.gguf"), sha256_of(content_));
  hub_.put("model.gguf", old, "cut=100000&cuts=1&noetag=1");
  bool changed = false;
  auto ready = await(provisioner_->provision(spec_, [&](std::string_view line) {
    progress_.emplace_back(line);
    if (changed || line.find("trying again") == std::string_view::npos) return;
    changed = true;
    hub_.put("model.gguf", content_, "noetag=1");
  }));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_THAT(progress_, Contains(HasSubstr("do not fit together")));
  EXPECT_TRUE(read_file(ready->weights.at("w")).value() == content_);
}

TEST_F(RemoteWeights, AServerWithoutRangesStartsOver) {
  hub_.put("model.gguf", content_, "cut=100000&cuts=1&norange=1");
  use("hf:org/name/model.gguf");
  EXPECT_EQ(get(), digest_);
  EXPECT_THAT(progress_, Contains(HasSubstr("starting over")));
}

TEST_F(RemoteWeights, AServerThatNeverComesToTheEndIsGivenUp) {
  hub_.put("model.gguf", content_, "cut=100000&norange=1");
  use("hf:org/name/model.gguf");
  EXPECT_THAT(get(), AllOf(HasSubstr("model \"m\": weight \"w\": cannot download"),
                           HasSubstr("org/name/model.gguf at revision main")));
}

TEST_F(RemoteWeights, AStalledDownloadIsTriedAgain) {
  hub_.put("model.gguf", content_, "stall=100000");
  use("hf:org/name/model.gguf");
  EXPECT_EQ(get(), digest_);
  EXPECT_EQ(bytes_sent(), static_cast<std::int64_t>(kSize));
}

TEST_F(RemoteWeights, ABusyServerIsAskedAgain) {
  hub_.put("model.gguf", content_, "busy=2");
  use("hf:org/name/model.gguf");
  EXPECT_EQ(get(), digest_);
  hub_.put("other.gguf", content_of(9), "busy=2");
  use(hub_.plain("other.gguf"), sha256_of(content_of(9)));
  EXPECT_EQ(get(), sha256_of(content_of(9)));
}

TEST_F(RemoteWeights, WhatIsNotThereIsNotAskedForAgain) {
  use("hf:org/name/none.gguf");
  EXPECT_THAT(get(), AllOf(HasSubstr("has no none.gguf in repository org/name at revision main")));
  use("hf:org/name@v9/none.gguf");
  EXPECT_THAT(get(), HasSubstr("at revision v9"));
  EXPECT_THAT(hub_.log(), SizeIs(2));
  use(hub_.plain("none.gguf"), sha256_of("x"));
  EXPECT_THAT(get(), AllOf(HasSubstr("/plain/none.gguf"), HasSubstr("answers 404")));
  EXPECT_THAT(hub_.downloads(), SizeIs(1));
}

TEST_F(RemoteWeights, CorruptBytesAreFoundAndThrownAway) {
  hub_.put("model.gguf", content_, "wrong=1");
  use("hf:org/name/model.gguf");
  EXPECT_THAT(get(), AllOf(HasSubstr("has the sha256 " + sha256_of(std::string(kSize, '\0'))),
                           HasSubstr("says " + sha256_of(content_))));
  EXPECT_FALSE(std::filesystem::exists(part(content_)));
  EXPECT_FALSE(std::filesystem::exists(stored(content_)));
  hub_.put("model.gguf", content_);
  EXPECT_EQ(get(), digest_);
}

TEST_F(RemoteWeights, ADigestThatTheHubContradictsIsSaidBeforeTheDownload) {
  hub_.put("model.gguf", content_);
  use("hf:org/name/model.gguf", sha256_of("other"));
  EXPECT_THAT(get(), AllOf(HasSubstr(sha256_of(content_)),
                           HasSubstr("model.toml says " + sha256_of("other"))));
  EXPECT_THAT(hub_.downloads(), IsEmpty());
}

TEST_F(RemoteWeights, AHubThatTellsNoDigestNeedsOneInTheSpec) {
  hub_.put("model.gguf", content_, "nodigest=1");
  use("hf:org/name/model.gguf");
  EXPECT_THAT(get(), HasSubstr("give its sha256 in model.toml"));
  use("hf:org/name/model.gguf", sha256_of(content_));
  EXPECT_EQ(get(), digest_);
}

TEST_F(RemoteWeights, ARenamedRepositoryIsFollowed) {
  hub_.put("old.gguf", content_, "moved=model.gguf");
  hub_.put("model.gguf", content_);
  use("hf:org/name/old.gguf");
  EXPECT_EQ(get(), digest_);
}

TEST_F(RemoteWeights, AServerThatRefusesHeadIsDownloadedFrom) {
  hub_.put("model.gguf", content_, "nohead=1");
  use(hub_.plain("model.gguf"), sha256_of(content_));
  EXPECT_EQ(get(), digest_);
}

TEST_F(RemoteWeights, AFileOfTwoModelsIsStoredAndFetchedOnce) {
  hub_.put("model.gguf", content_, "gate=1");
  ModelSpec other = spec_;
  other.name = "other";
  use("hf:org/name/model.gguf");
  other.weights = {
      {.name = "o", .source = hub_.plain("model.gguf"), .sha256 = sha256_of(content_)}};
  std::optional<Result<Provisioned>> first;
  std::optional<Result<Provisioned>> second;
  start(provisioner_->provision(other, {}), second);
  start(provisioner_->provision(spec_, {}), first);
  tasks_.spawn(open_when_claimed("model.gguf", {"m", "other"}));
  run_until_idle();
  ASSERT_TRUE(first && first->ok()) << first->error().message;
  ASSERT_TRUE(second && second->ok()) << second->error().message;
  EXPECT_EQ((*first)->weights.at("w"), (*second)->weights.at("o"));
  EXPECT_THAT(hub_.downloads(), SizeIs(1));
}

TEST_F(RemoteWeights, AStoredFileIsFoundWithoutANetwork) {
  hub_.put("model.gguf", content_);
  hub_.put("small.json", "{}", "small=1");
  use("hf:org/name/model.gguf");
  spec_.weights.push_back({.name = "s", .source = "hf:org/name/small.json"});
  spec_.weights.push_back(
      {.name = "u", .source = hub_.plain("other.gguf"), .sha256 = sha256_of(content_)});
  ASSERT_EQ(get(), digest_);
  hub_.stop();
  ::setenv("HF_TOKEN_PATH", "/no/such/file", 1);  // nor a token
  restart();
  EXPECT_EQ(get(), digest_);
  use("hf:org/name/another.gguf");
  EXPECT_THAT(get(), HasSubstr("cannot open /no/such/file"));
}

TEST_F(RemoteWeights, ADamagedStoredFileIsFetchedAgain) {
  hub_.put("model.gguf", content_);
  use("hf:org/name/model.gguf");
  ASSERT_EQ(get(), digest_);
  // Shorter; then as long, but another.
  std::filesystem::resize_file(stored(content_), 10);
  EXPECT_EQ(get(), digest_);
  EXPECT_THAT(progress_, Contains(HasSubstr("is damaged")));
  std::fstream(stored(content_), std::ios::in | std::ios::out).write("x", 1);
  EXPECT_EQ(get(), digest_);
  EXPECT_THAT(hub_.downloads(), SizeIs(3));
  EXPECT_EQ(get(), digest_);
  EXPECT_THAT(hub_.downloads(), SizeIs(3));
}

TEST_F(RemoteWeights, ATokenGoesToTheHubAndNowhereElse) {
  hub_.put("model.gguf", content_, "private=hf_secret");
  hub_.put("small.json", "{}", "private=hf_secret&small=1");
  // A curl that shows how it was called.
  const auto curl = folder_.write("curl", R"(#!/bin/sh
echo "$*" >> "$0.calls"; env >> "$0.calls"; exec /usr/bin/curl "$@")",
                                  0755);
  ::setenv("OMNI_CURL", curl.c_str(), 1);
  ::setenv("HF_TOKEN", "hf_secret\n", 1);
  restart();
  use("hf:org/name/model.gguf");
  spec_.weights.push_back({.name = "s", .source = "hf:org/name/small.json"});
  EXPECT_EQ(get(), digest_);
  ::unsetenv("OMNI_CURL");
  for (const Seen& seen : hub_.log()) {
    EXPECT_EQ(seen.token, seen.at == "hub" ? "Bearer hf_secret" : "") << seen.path;
  }
  EXPECT_THAT(hub_.downloads(), SizeIs(1));
  EXPECT_THAT(read_file(folder_.path() / "curl.calls").value(), Not(HasSubstr("hf_secret")));
  EXPECT_THAT(progress_, Each(Not(HasSubstr("hf_secret"))));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(paths_.state)) {
    if (!entry.is_regular_file()) continue;
    EXPECT_THAT(read_file(entry.path()).value(), Not(HasSubstr("hf_secret"))) << entry.path();
  }
}

TEST_F(RemoteWeights, ARefusalSaysHowToGiveAToken) {
  hub_.put("model.gguf", content_, "private=hf_secret");
  use("hf:org/name/model.gguf");
  EXPECT_THAT(get(), AllOf(HasSubstr("without a token"), HasSubstr("HF_TOKEN")));
  ::setenv("HF_TOKEN", "hf_wrong", 1);
  restart();
  EXPECT_THAT(get(), AllOf(HasSubstr("to the token of HF_TOKEN"), HasSubstr("accept the terms"),
                           Not(HasSubstr("hf_wrong"))));
  EXPECT_THAT(hub_.log(), SizeIs(2)) << "not asked again";
}

TEST_F(RemoteWeights, ATokenMayStandInAFile) {
  hub_.put("model.gguf", content_, "private=hf_secret");
  use("hf:org/name/model.gguf");
  folder_.write("named", "hf_secret\n");
  folder_.write("home/token", "hf_secret\n");
  folder_.write(".cache/huggingface/token", "hf_secret\n");
  auto try_it = [&] {
    restart();
    std::filesystem::remove_all(paths_.state);
    return get() == digest_;
  };
  EXPECT_TRUE(try_it()) << "~/.cache/huggingface/token";
  std::filesystem::remove_all(folder_.path() / ".cache");
  EXPECT_FALSE(try_it());
  ::setenv("HF_HOME", (folder_.path() / "home").c_str(), 1);
  EXPECT_TRUE(try_it()) << "HF_HOME";
  ::setenv("HF_HOME", "/nowhere", 1);
  ::setenv("HF_TOKEN_PATH", (folder_.path() / "named").c_str(), 1);
  EXPECT_TRUE(try_it()) << "HF_TOKEN_PATH";
}

TEST_F(RemoteWeights, OnlyEncryptedAddressesAreFollowedFromAnEncryptedOne) {
  const std::string certificate = folder_.path() / "certificate.pem";
  const std::string make =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
      "/CN=test -addext subjectAltName=IP:127.0.0.1 -keyout " +
      certificate + " -out " + certificate + ".crt 2>/dev/null && cat " + certificate + ".crt >> " +
      certificate;
  if (std::system(make.c_str()) != 0) GTEST_SKIP() << "there is no openssl";
  FakeHub hub(certificate);
  hub.put("model.gguf", content_);
  hub.put("elsewhere.gguf", content_, "plain=1");
  use(hub.encrypted("model.gguf"), sha256_of(content_));
  EXPECT_THAT(get(), HasSubstr("curl: (60)")) << "whoever made the certificate is not trusted";
  ::setenv("SSL_CERT_FILE", (certificate + ".crt").c_str(), 1);
  restart();
  EXPECT_EQ(get(), digest_);
  std::filesystem::remove_all(paths_.state);
  use(hub.encrypted("elsewhere.gguf"), sha256_of(content_));
  EXPECT_THAT(get(), HasSubstr("it leads to an address without encryption"));
  ::unsetenv("SSL_CERT_FILE");
}

TEST_F(RemoteWeights, AFullDiskIsSaidBeforeTheFirstByte) {
  hub_.put("model.gguf", content_);
  limits_.margin = Bytes(std::int64_t{1} << 60);
  restart();
  use("hf:org/name/model.gguf");
  auto failed = provision();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::disk_full);
  EXPECT_THAT(failed.error().message,
              AllOf(HasSubstr((paths_.state / "weights").string()), HasSubstr("(300000 bytes")));
  EXPECT_THAT(hub_.downloads(), IsEmpty());
}

TEST_F(RemoteWeights, ADiskThatFillsUpMeanwhileKeepsThePart) {
  const std::filesystem::path weights = paths_.state / "weights";
  std::filesystem::create_directories(weights);
  if (::mount("tmpfs", weights.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "only root can mount a small file system";
  }
  const std::string large = content_of(2'000'000);
  hub_.put("model.gguf", large, "nohead=1");
  limits_.report = 1h;  // the size is not known before, and nobody looks meanwhile
  restart();
  use(hub_.plain("model.gguf"), sha256_of(large));
  auto failed = provision();
  const bool kept = std::filesystem::exists(part(large));
  EXPECT_EQ(::umount2(weights.c_str(), MNT_DETACH), 0);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::disk_full) << failed.error().message;
  EXPECT_THAT(failed.error().message, HasSubstr(weights.string()));
  EXPECT_TRUE(kept);
}

TEST_F(RemoteWeights, ASizeThatShowsOnlyInTheDownloadIsCheckedToo) {
  hub_.put("model.gguf", content_, "nohead=1&gate=1");
  limits_.margin = Bytes(std::int64_t{1} << 60);
  restart();
  use(hub_.plain("model.gguf"), sha256_of(content_));
  auto failed = provision();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::disk_full) << failed.error().message;
}

TEST_F(RemoteWeights, CancellingEndsCurl) {
  hub_.put("model.gguf", content_, "gate=1");
  use("hf:org/name/model.gguf");
  auto cancel_when_fetching = [&](std::string_view line) {
    if (line.find("/s") == line.npos) return;
    asio::post(loop_, [this] { tasks_.cancel(); });
  };
  std::optional<Result<Provisioned>> result;
  start(provisioner_->provision(spec_, cancel_when_fetching), result);
  run_until_idle();
  EXPECT_FALSE(result.has_value());
  EXPECT_EQ(tasks_.size(), 0U);
  EXPECT_TRUE(std::filesystem::exists(part(content_))) << "for the next time";
  hub_.put("model.gguf", content_);
  EXPECT_EQ(get(), digest_);
}

TEST_F(RemoteWeights, WithoutCurlSaysHowToGetIt) {
  hub_.put("model.gguf", content_);
  use("hf:org/name/model.gguf");
  ::setenv("OMNI_CURL", "/no/curl", 1);
  restart();
  EXPECT_THAT(get(), HasSubstr("OMNI_CURL is \"/no/curl\""));
  ::unsetenv("OMNI_CURL");
  auto missing = Curl::find({{"PATH", "/nowhere"}}, "/");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("apt install curl"));
}

TEST_F(RemoteWeights, WhatAModelUsesIsNoted) {
  hub_.put("model.gguf", content_);
  use("hf:org/name/model.gguf");
  auto ready = provision();
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  const Used used = read_record(record_file(paths_.state, "m")).value();
  EXPECT_THAT(used.weights, testing::ElementsAre(sha256_of(content_)));
  EXPECT_THAT(used.versions, testing::ElementsAre(ready->version));
  EXPECT_THAT(used.environments, IsEmpty());
}

}  // namespace
}  // namespace omni
