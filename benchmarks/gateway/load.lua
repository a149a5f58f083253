-- A POST of 1 KiB of JSON. LOAD_STREAM=1 asks for a stream. Reports itself as one line of JSON.
local stream = os.getenv("LOAD_STREAM") == "1"
local head = '{"model":"bench","stream":' .. tostring(stream) ..
  ',"messages":[{"role":"user","content":"'
local tail = '"}]}'
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = head .. string.rep("x", 1024 - #head - #tail) .. tail

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests": %d, "seconds": %.6f, "p50_ms": %.3f, "p99_ms": %.3f, "errors": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3,
    latency:percentile(99) / 1e3,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
