package app_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// TestCase81CardNumbersAreMaskedWhereBodiesAreShown checks that with pan_guard the receiver gets the whole
// body, and that API and pages mask card numbers in the body and the response. The page says so. Without
// pan_guard nothing is masked.
func TestCase81CardNumbersAreMaskedWhereBodiesAreShown(t *testing.T) {
	t.Parallel()
	const card, masked = "4111111111111111", "411111******1111"
	for _, guard := range []string{"off", "mask"} {
		t.Run(guard, func(t *testing.T) {
			t.Parallel()
			got := make(chan string, 1)
			to := cmdtest.ServeHandler(t, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				got <- string(body)
				cmdtest.Respond(t, w, "charged "+card)
			})
			r := apptest.Start(t, apptest.Settings(t, "--pan-guard", guard))
			var cb client.Callback
			r.Call(t, http.MethodPost, "/v1/callbacks",
				map[string]any{"url": to, "payload": map[string]any{"card": card}}, &cb)
			if body := <-got; !strings.Contains(body, card) {
				t.Errorf("sent %s", body)
			}
			testserver.Until(t, "it succeeds", func() bool { return r.State(t, cb.ID) == "succeeded" })
			want, unwanted := masked, card
			if guard == "off" {
				want, unwanted = card, masked
			}
			attempts := r.Call(t, http.MethodGet, remote.CallbackPath(cb.ID)+"/attempts", nil, nil)
			texts := map[string]string{"attempts": string(attempts)}
			for _, page := range []string{"", "/attempts/1"} {
				texts["page "+page] = r.Page(t, "/callbacks/"+cb.ID+page)
			}
			api, err := client.New(client.Options{URL: r.Client.Base, Key: r.Settings.AdminKey})
			if err != nil {
				t.Fatal(err)
			}
			payload, err := api.Payload(t.Context(), cb.ID)
			if err != nil || payload.Masked != (guard == "mask") {
				t.Errorf("payload.Masked is %t (%v)", payload.Masked, err)
			}
			texts["payload"] = string(payload.Body)
			hints := map[string]int{"off": 0, "mask": 2}[guard]
			if n := strings.Count(texts["page "], "contain them in full"); n != hints {
				t.Errorf("the page has %d hints that card numbers are masked", n)
			}
			for what, text := range texts {
				if !strings.Contains(text, want) || strings.Contains(text, unwanted) {
					t.Errorf("%s: %s", what, text)
				}
			}
		})
	}
}
