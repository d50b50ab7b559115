package faults

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
)

// A nameServer answers every name below its zone with 127.0.0.1 and all others with "no such name", over UDP,
// until it falls silent. It is the only one of the processes that are run under its program.
type nameServer struct {
	l       *trial
	zone    string
	address string

	mu     sync.Mutex
	conn   net.PacketConn // nil: closed
	silent bool
	ended  sync.WaitGroup
}

// nameServers counts the addresses that were tried.
var nameServers atomic.Uint32

// startNameServer listens on port 53, which is the only one that a system's configuration can name, of an
// address of its own.
func startNameServer(tr *trial, zone string) *nameServer {
	tr.Helper()
	s := &nameServer{l: tr, zone: zone}
	for range 250 {
		// No address is used twice: one that is closed at the moment may be a trial's all the same.
		s.address = net.IPv4(127, 53, 53, byte(1+nameServers.Add(1)%250)).String()
		var err error
		if s.conn, err = net.ListenPacket("udp4", net.JoinHostPort(s.address, "53")); err != nil &&
			os.IsPermission(err) {
			tr.Fatalf("this test answers names on port 53 and mounts a resolv.conf: run it as root: %v", err)
		}
		if s.conn != nil {
			break
		}
	}
	if s.conn == nil {
		tr.Fatal("no address of 127.53.53.0/24 has port 53 free")
	}
	conn := s.conn // which close forgets
	s.ended.Go(func() { s.serve(conn) })
	tr.Cleanup(func() {
		s.close()
		s.ended.Wait()
	})
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

// fallSilent reads questions and answers none.
func (s *nameServer) fallSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
}

// close closes the port: the kernel refuses questions.
func (s *nameServer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.Close() // serve returns
		s.conn = nil
	}
}

// listen ends what fallSilent and close began.
func (s *nameServer) listen() {
	s.l.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = false
	if s.conn != nil {
		return
	}
	conn, err := net.ListenPacket("udp4", net.JoinHostPort(s.address, "53"))
	if err != nil {
		s.l.Fatal(err)
	}
	s.conn = conn
	s.ended.Go(func() { s.serve(conn) })
}

func (s *nameServer) serve(conn net.PacketConn) {
	buffer := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return // closed
		}
		answer := s.answer(buffer[:n])
		s.mu.Lock()
		silent := s.silent
		s.mu.Unlock()
		if answer != nil && !silent {
			conn.WriteTo(answer, from) // the resolver asks again
		}
	}
}

// answer makes the reply to one question (RFC 1035 §4.1): its header, the question itself, for an address
// of the zone one record.
func (s *nameServer) answer(question []byte) []byte {
	const header, typeA = 12, 1
	if len(question) < header {
		return nil
	}
	var name strings.Builder
	end := header
	for end < len(question) && question[end] != 0 {
		label := end + 1 + int(question[end])
		if label > len(question) {
			return nil
		}
		name.Write(question[end+1 : label])
		name.WriteByte('.')
		end = label
	}
	end += 5 // the empty label, type and class
	if end > len(question) {
		return nil
	}
	kind := int(question[end-4])<<8 | int(question[end-3])
	known := strings.HasSuffix(strings.ToLower(name.String()), "."+s.zone)
	reply := make([]byte, 0, 512)
	// an answer, with recursion
	reply = append(reply, question[0], question[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0)
	reply = append(reply, question[header:end]...)
	switch {
	case !known:
		reply[3] |= 3 // no such name
	case kind == typeA:
		reply[7] = 1
		reply = append(reply, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
	}
	return reply
}
