package api_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// slowBooks take so long to compare, unless the request ends before.
type slowBooks struct {
	rows
	takes time.Duration
}

func (b slowBooks) Compare(
	ctx context.Context, _ string, _, _ int64, _ []string, _ int,
) (store.Comparison, error) {
	select {
	case <-ctx.Done():
		return store.Comparison{}, ctx.Err()
	case <-time.After(b.takes):
		return store.Comparison{}, nil
	}
}

// TestTimeoutsAreLiftedAfterTheBody: a route that may take minutes outlasts the server's time-outs, but its
// request must come within them.
func TestTimeoutsAreLiftedAfterTheBody(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	o := optionsOf(fullEngine())
	o.Store = slowBooks{rows{fullEngine()}, 2 * timeout}
	server := httptest.NewUnstartedServer(newFaceOf(t, o))
	server.Config.ReadTimeout, server.Config.WriteTimeout = timeout, timeout
	server.Start()
	t.Cleanup(server.Close)
	const body = `{"from":"2026-11-20T00:00:00Z","refs":[]}`
	for _, length := range []int64{int64(len(body)), -1} {
		t.Run(fmt.Sprint("body of ", length), func(t *testing.T) {
			t.Parallel()
			req := httptest.NewRequest("POST", server.URL+"/v1/reconcile/compare", io.NopCloser(strings.NewReader(body)))
			req.RequestURI, req.ContentLength = "", length
			req.Header.Set("Authorization", "Bearer "+adminKey)
			resp, err := server.Client().Do(req)
			if err != nil || resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, head := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
		t.Run("silent, "+head, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, "POST /v1/reconcile/compare HTTP/1.1\r\nHost: h\r\n"+
				"Authorization: Bearer "+adminKey+"\r\n"+head+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(conn); err != nil {
				t.Errorf("the request is still waited for: %v", err)
			}
		})
	}
}
