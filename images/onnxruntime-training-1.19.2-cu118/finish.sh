# ONNX Runtime's wheel holds no CUDA. This release looks for it in /usr/local/cuda-11.8, and has no option for another folder.
# Its search path is changed to the folders of NVIDIA's wheels.
set -eu
packages="$(python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')"
folders="$(cd "$packages" && printf ':$ORIGIN/../../%s' nvidia/*/lib)"
patchelf --set-rpath "\$ORIGIN$folders" "$packages/onnxruntime/capi/libonnxruntime_providers_cuda.so"
