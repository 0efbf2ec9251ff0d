package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The range that FreePorts picks from lies below the ports that systems give to outgoing connections. Those are 32768
// and up on Linux, and 49152 and up by RFC 6335. Otherwise, such a connection could take a port between its choice and
// its use.
const (
	firstPort = 20000
	lastPort  = 32000
	blockSize = 240
)

// block is a part of the range that belongs to one process alone. Packages are tested in parallel, and no process may
// choose a port that another has chosen and not used yet.
type block struct {
	// claim listens on the block's first port for as long as the process lives.
	claim net.Listener

	mu    sync.Mutex
	first int
	next  int // to be chosen, counted from first
}

// ours is the block of this process.
var ours = sync.OnceValues(claimBlock)

// claimBlock takes a block that no process has.
func claimBlock() (*block, error) {
	var last error
	blocks := (lastPort - firstPort) / blockSize
	for _, i := range rand.Perm(blocks) {
		first := firstPort + i*blockSize
		claim, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first)))
		if err == nil {
			return &block{claim: claim, first: first, next: 1}, nil
		}
		last = err
	}
	return nil, fmt.Errorf("each of %d blocks of ports is another process's: %w", blocks, last)
}

// FreePorts returns so many different TCP ports that nothing listens on, neither on the
// address nor on any other of this machine. No other process is given them, nor this one until it has been given some 200 others.
func FreePorts(address string, n int) ([]int, error) {
	b, err := ours()
	if err != nil {
		return nil, fmt.Errorf("find a free port on %s: %w", address, err)
	}
	return b.free(address, n)
}

func (b *block) free(address string, n int) ([]int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ports []int
	last := errors.New("more ports than a block has")
	for range blockSize - 1 {
		port := b.first + b.next
		b.next = max(1, (b.next+1)%blockSize)
		if err := bindable(address, port); err != nil {
			last = err
			continue
		}
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("find %d free ports on %s: %w", n, address, last)
}

// bindable tries a port on the address and on all addresses.
func bindable(address string, port int) error {
	for _, host := range []string{address, ""} {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		_ = listener.Close()
	}
	return nil
}
