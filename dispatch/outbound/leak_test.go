package outbound

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestNothingSecretLeaves: signing secrets, credentials in headers and values of the query are in no part of a
// response, however the attempt ends, not even when the receiver echoes the whole request.
func TestNothingSecretLeaves(t *testing.T) {
	t.Parallel()
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dump, err := httputil.DumpRequest(r, true)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Location", r.URL.String())
		w.Header().Set("Server", r.Header.Get("Authorization")+r.URL.RawQuery)
		w.Header().Set("X-Request-Id", strings.Repeat("x", maxKeptHeader-10)+r.Header.Get("X-Api-Key"))
		w.Header().Set("Content-Type", r.Header.Get("Cookie"))
		if r.URL.Path == "/302" {
			w.WriteHeader(302)
		}
		io.WriteString(w, strings.Repeat("-", MaxKeptBytes-1000)+string(dump)+string(dump)+string(dump))
	}))
	defer echo.Close()
	garbage := serveAnswer(t, "Bearer hunter2-token\r\n\r\n")
	hang := serveRaw(t, func(c *net.TCPConn, _ int) { io.Copy(io.Discard, c) })
	c := newTestClient(t, Options{})
	const query = "?token=query-value-1&plain=query%20value%202&query-value-3"
	for _, url := range []string{
		echo.URL + "/", echo.URL + "/302", garbage.URL, hang.URL, "http://127.0.0.1:1/", "http://10.0.0.1/", "http://unknown.invalid/",
		"http://user:query-value-1@shop.example/", strings.Replace(echo.URL, "http:", "https:", 1),
	} {
		r := newRequest(url + query)
		r.Timeout = 300 * time.Millisecond
		r.Success.Name = RuleBodySuccess
		r.Headers = []store.Header{
			{Name: "Authorization", Value: "Bearer hunter2-token"}, {Name: "Cookie", Value: "session=hunter2-cookie"},
			{Name: "X-Api-Key", Value: "hunter2-api-key"}, {Name: "X-Access-Token", Value: "hunter2-access"},
			{Name: "X-Client-Secret", Value: "hunter2-client"}, {Name: "X-Signature", Value: "hunter2-signature"},
			{Name: "X-Shop", Value: "shown-7"},
		}
		resp := c.Send(t.Context(), r)
		text, err := json.Marshal(resp)
		if err != nil {
			t.Fatal(err)
		}
		all := string(text) + fmt.Sprintf("%+v", resp)
		for _, secret := range []string{
			"hunter2", "query-value-1", "query value 2", "query%20value%202", "query-value-3",
			string(testSecret()), FormatSecret(testSecret()), strings.TrimPrefix(FormatSecret(testSecret()), SecretPrefix),
		} {
			if strings.Contains(all, secret) {
				t.Errorf("%s (%s): %q is in the response: %s", MaskURL(url), resp.Class, secret, all)
			}
		}
		if resp.RequestHeaders == nil {
			continue // refused before there were any
		}
		for _, visible := range []string{"shown-7", "cb_01JD0000000000000000000001", "webhook-timestamp", `"webhook-attempt","value":"1"`, "traceparent"} {
			if !strings.Contains(all, visible) {
				t.Errorf("%s: %q should be shown", MaskURL(url), visible)
			}
		}
	}
}
