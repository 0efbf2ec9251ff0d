// Command pause waits until it is told to stop. It is the sandbox process of every pod in the
// end-to-end cluster, and the workload of pods that only have to run.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
