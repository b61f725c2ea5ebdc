"""The known messages of drivers, engines, frameworks and kernels: tables with causes and fixes."""
