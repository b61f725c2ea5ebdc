# ONNX Runtime's wheel holds no CUDA, and this release cannot be told where NVIDIA's wheels have it: its provider looks in
# /usr/local/cuda-11.8. It is given their folders instead.
set -eu
packages="$(python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')"
folders="$(cd "$packages" && printf ':$ORIGIN/../../%s' nvidia/*/lib)"
patchelf --set-rpath "\$ORIGIN$folders" "$packages/onnxruntime/capi/libonnxruntime_providers_cuda.so"
