//go:build linux

// Command netdelay delays the packets that an iptables rule sends to a netfilter queue:
//
//	iptables -t mangle -A FORWARD -s 10.251.1.0/24 -j NFQUEUE --queue-num 1
//	netdelay -queue 1 -delay 300ms
//
// It must run in the network namespace of the rule. It does what tc's netem does, with kernels
// that are built without netem. Packets stay in the kernel; only their numbers come here.
package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The protocol's numbers (linux/netfilter/nfnetlink.h and nfnetlink_queue.h).
const (
	messagePacket = 3<<8 + iota // of the subsystem with number 3
	messageVerdict
	messageConfig

	configCommand, configParams, configMaxLength = 1, 2, 3
	commandBind                                  = 1
	copyMeta                                     = 1

	packetHeader, verdictHeader = 1, 2
	verdictAccept               = 1
)

// queueLength is how many packets can be under way: more than a few pods send in a second.
const queueLength = 8192

type packet struct {
	id  uint32
	due time.Time
}

func main() {
	queue := flag.Uint("queue", 1, "number of the netfilter queue")
	delay := flag.Duration("delay", 300*time.Millisecond, "time by which every packet is late")
	flag.Parse()
	if err := run(uint16(*queue), *delay); err != nil { //nolint:gosec // a queue's number has 16 bits
		fmt.Fprintln(os.Stderr, "netdelay:", err)
		os.Exit(1)
	}
}

func run(queue uint16, delay time.Duration) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadBuffer(4 << 20); err != nil {
		return err
	}
	config := func(attribute uint16, data []byte) error {
		message, err := message(messageConfig, netlink.Request|netlink.Acknowledge, queue, attribute, data)
		if err != nil {
			return err
		}
		_, err = conn.Execute(message)
		return err
	}
	if err := config(configCommand, []byte{commandBind, 0, 0, 0}); err != nil {
		return fmt.Errorf("bind queue %d: %w", queue, err)
	}
	if err := config(configParams, []byte{0, 0, 0, 0, copyMeta}); err != nil {
		return err
	}
	if err := config(configMaxLength, binary.BigEndian.AppendUint32(nil, queueLength)); err != nil {
		return err
	}
	fmt.Printf("netdelay: queue %d is late by %s\n", queue, delay)

	held := make(chan packet, queueLength)
	go release(conn, queue, held)
	for {
		messages, err := conn.Receive()
		if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOENT) {
			continue // the kernel dropped what did not fit, as a full link does, or a packet that was held here
		}
		if err != nil {
			return err
		}
		due := time.Now().Add(delay)
		for _, m := range messages {
			if uint16(m.Header.Type) != messagePacket || len(m.Data) < 4 {
				continue
			}
			attributes, err := netlink.UnmarshalAttributes(m.Data[4:])
			if err != nil {
				return err
			}
			for _, a := range attributes {
				if a.Type == packetHeader && len(a.Data) >= 4 {
					held <- packet{id: binary.BigEndian.Uint32(a.Data), due: due}
				}
			}
		}
	}
}

// release accepts packets when they are due, in the order in which they came.
func release(conn *netlink.Conn, queue uint16, held <-chan packet) {
	for p := range held {
		time.Sleep(time.Until(p.due))
		data := binary.BigEndian.AppendUint32(nil, verdictAccept)
		data = binary.BigEndian.AppendUint32(data, p.id)
		message, err := message(messageVerdict, netlink.Request, queue, verdictHeader, data)
		if err == nil {
			_, err = conn.Send(message)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "netdelay: release a packet:", err)
		}
	}
}

// message has the subsystem's own header (family, version, queue) before its one attribute.
func message(kind uint16, flags netlink.HeaderFlags, queue uint16, attribute uint16, data []byte) (netlink.Message, error) {
	attributes, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: attribute, Data: data}})
	if err != nil {
		return netlink.Message{}, err
	}
	header := []byte{unix.AF_UNSPEC, 0, byte(queue >> 8), byte(queue)}
	return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: flags}, Data: append(header, attributes...)}, nil
}
