package redisq_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A proxy is between a client and a server. It can reply to some commands itself, or lose the server's
// replies.
type proxy struct {
	url string
	// errorReply is the error with which the proxy replies to scripts and INFO; nil: the server replies.
	errorReply atomic.Pointer[string]
	// lose is how many replies the proxy still loses: the server executes the command, and the proxy closes
	// the connection. lost counts them.
	lose, lost atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
}

// startProxy starts a proxy at an address, for the server at the URL.
func startProxy(t *testing.T, addr, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{url: "redis://" + l.Addr().String()}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", strings.TrimPrefix(server, "redis://"))
			if err != nil {
				t.Errorf("proxy: %v", err)
				client.Close()
				return
			}
			p.mu.Lock()
			p.conns = append(p.conns, client, behind)
			p.mu.Unlock()
			group.Go(func() { p.ask(client, behind); behind.Close() })
			group.Go(func() { p.answer(client, behind); client.Close() })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		group.Wait()
	})
	return p
}

// answerWith sets the error reply; empty: the server replies again.
func (p *proxy) answerWith(answer string) {
	p.errorReply.Store(nil)
	if answer != "" {
		p.errorReply.Store(&answer)
	}
}

// ask forwards commands until the client closes the connection.
func (p *proxy) ask(client, server net.Conn) {
	for r := bufio.NewReader(client); ; {
		name, raw, err := readCommand(r)
		if err != nil {
			return
		}
		affected := name == "evalsha" || name == "eval" || name == "info"
		if answer := p.errorReply.Load(); answer != nil && affected {
			_, err = client.Write([]byte("-" + *answer + "\r\n"))
		} else {
			_, err = server.Write(raw)
		}
		if err != nil {
			return
		}
	}
}

// answer forwards replies until the server closes the connection or a reply is to be lost.
func (p *proxy) answer(client, server net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if n > 0 && p.lose.Add(-1) >= 0 {
			p.lost.Add(1)
			return
		}
		if _, failed := client.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

// readCommand reads one command, an array of texts with their lengths, and returns its first word.
func readCommand(r *bufio.Reader) (name string, raw []byte, err error) {
	number := func(mark byte) (int, error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		raw = append(raw, line...)
		if line[0] != mark {
			return 0, fmt.Errorf("%q does not begin with %c", line, mark)
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number('*')
	for i := range n {
		var size int
		size, err = number('$')
		if err != nil {
			return "", nil, err
		}
		word := make([]byte, size+2)
		_, err = io.ReadFull(r, word)
		if err != nil {
			return "", nil, err
		}
		raw = append(raw, word...)
		if i == 0 {
			name = strings.ToLower(string(word[:size]))
		}
	}
	return name, raw, err
}
