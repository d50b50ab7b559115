package faults

import (
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
)

// A nameServer answers every name with 127.0.0.1, over UDP, until it falls silent. It is the only one of the
// processes that are run under its program.
type nameServer struct {
	l       *trial
	address string
	silent  atomic.Bool // it reads questions and answers none
}

// nameServers counts the addresses that were tried.
var nameServers atomic.Uint32

// startNameServer listens on port 53, which is the only one that a system's configuration can name, of an
// address of its own.
func startNameServer(tr *trial) *nameServer {
	tr.Helper()
	s := &nameServer{l: tr}
	var conn net.PacketConn
	for range 250 {
		// No address is used twice: one that is closed at the moment may be a trial's all the same.
		s.address = net.IPv4(127, 53, 53, byte(1+nameServers.Add(1)%250)).String()
		var err error
		if conn, err = net.ListenPacket("udp4", net.JoinHostPort(s.address, "53")); err != nil &&
			os.IsPermission(err) {
			tr.Fatalf("this test answers names on port 53 and mounts a resolv.conf: run it as root: %v", err)
		}
		if conn != nil {
			break
		}
	}
	if conn == nil {
		tr.Fatal("no address of 127.53.53.0/24 has port 53 free")
	}
	tr.Cleanup(func() { conn.Close() })
	go s.serve(conn)
	return s
}

// program runs a process that sees a resolv.conf of its own, with this name server alone.
func (s *nameServer) program() []string {
	s.l.Helper()
	file := filepath.Join(s.l.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("nameserver "+s.address+"\noptions timeout:1 attempts:2\n"),
		0o644); err != nil {
		s.l.Fatal(err)
	}
	return []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, file}
}

// serve answers until the connection is closed.
func (s *nameServer) serve(conn net.PacketConn) {
	buffer := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		if reply := answer(buffer[:n]); reply != nil && !s.silent.Load() {
			conn.WriteTo(reply, from) // the resolver asks again
		}
	}
}

// answer makes the reply to one question (RFC 1035 §4.1): its header, the question itself, for an address one
// record.
func answer(question []byte) []byte {
	const header, typeA = 12, 1
	end := header
	for end < len(question) && question[end] != 0 {
		end += 1 + int(question[end])
	}
	end += 5 // the empty label, type and class
	if end > len(question) {
		return nil
	}
	// an answer, with recursion
	reply := []byte{question[0], question[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}
	reply = append(reply, question[header:end]...)
	if question[end-3] == typeA {
		reply[7] = 1
		reply = append(reply, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
	}
	return reply
}
