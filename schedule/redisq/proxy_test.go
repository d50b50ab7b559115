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

// A proxy stands before a server. It answers some commands in its stead, or loses its replies.
type proxy struct {
	url string
	// says is the error that scripts and INFO are answered with; nil: the server answers itself.
	says atomic.Pointer[string]
	// lose is how many replies are still to be lost: the server does the command, and the connection is
	// closed.
	lose, lost atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
}

// startProxy starts a proxy at an address, before the server of that URL.
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

// say sets the answer; empty: the server answers again.
func (p *proxy) say(answer string) {
	p.says.Store(nil)
	if answer != "" {
		p.says.Store(&answer)
	}
}

// ask hands commands on until the client has gone.
func (p *proxy) ask(client, server net.Conn) {
	for r := bufio.NewReader(client); ; {
		name, raw, err := readCommand(r)
		if err != nil {
			return
		}
		if answer := p.says.Load(); answer != nil && (name == "evalsha" || name == "eval" || name == "info") {
			_, err = client.Write([]byte("-" + *answer + "\r\n"))
		} else {
			_, err = server.Write(raw)
		}
		if err != nil {
			return
		}
	}
}

// answer hands replies on until the server has gone, or one is to be lost.
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

// readCommand reads one command, an array of texts with their lengths before them, and returns its first
// word.
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
