/* libcuda.so.1 and libnvidia-ml.so.1 of a machine without a GPU: every function says "no device", or "driver not loaded".
 *
 * The wheels of MXNet 1.9 and CNTK 2.7 link the driver's libraries, and are not imported where there is no driver. With these they are
 * imported, find no GPU, and compute on the CPU: `runner images try mxnet-1.9.1-cu117 --driver FOLDER`. In FOLDER, of this one file:
 *     cc -shared -fPIC -Wl,-soname,libcuda.so.1 -o FOLDER/libcuda.so.1 tests/stand_ins/no_driver.c
 *     cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o FOLDER/libnvidia-ml.so.1 tests/stand_ins/no_driver.c
 * The functions are those that these wheels' libraries leave undefined (nm -D --undefined-only).
 */

#define NO_DEVICE 100        /* CUDA_ERROR_NO_DEVICE */
#define DRIVER_NOT_LOADED 9  /* NVML_ERROR_DRIVER_NOT_LOADED */

#define CUDA(name) int name(void) { return NO_DEVICE; }
#define NVML(name) int name(void) { return DRIVER_NOT_LOADED; }

CUDA(cuDeviceGet)
CUDA(cuDevicePrimaryCtxRetain)
CUDA(cuGetErrorString)
CUDA(cuGraphKernelNodeGetParams)
CUDA(cuGraphNodeGetType)
CUDA(cuLaunchKernel)
CUDA(cuModuleGetFunction)
CUDA(cuModuleLoadData)
CUDA(cuModuleLoadDataEx)
CUDA(cuModuleUnload)

NVML(nvmlDeviceGetComputeRunningProcesses)
NVML(nvmlDeviceGetHandleByIndex_v2)
NVML(nvmlDeviceGetMemoryInfo)
NVML(nvmlDeviceGetPciInfo_v3)
NVML(nvmlDeviceGetUUID)
NVML(nvmlDeviceGetUtilizationRates)
NVML(nvmlInit_v2)
NVML(nvmlShutdown)
NVML(nvmlSystemGetProcessName)

const char *nvmlErrorString(int error) {
    (void)error;
    return "there is no driver";
}
