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

// Case 81: with pan_guard a receiver gets every byte, and nothing that is shown has a card number, neither
// the body nor what the receiver answered; and the page says so. Without it all is shown as it is.
func TestCase81CardNumbersAreMaskedWhereBodiesAreShown(t *testing.T) {
	t.Parallel()
	const card, masked = "4111111111111111", "411111******1111"
	for _, guard := range []string{"off", "mask"} {
		t.Run(guard, func(t *testing.T) {
			t.Parallel()
			got := make(chan string, 1)
			to := cmdtest.Handling(t, func(w http.ResponseWriter, r *http.Request) {
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
			shown := map[string]string{
				"attempts": string(r.Call(t, http.MethodGet, remote.CallbackPath(cb.ID)+"/attempts", nil,
					nil)),
			}
			for _, page := range []string{"", "/attempts/1"} {
				shown["page "+page] = r.Page(t, "/callbacks/"+cb.ID+page)
			}
			api, err := client.New(client.Options{URL: r.Client.Base, Key: r.Settings.AdminKey})
			if err != nil {
				t.Fatal(err)
			}
			payload, err := api.Payload(t.Context(), cb.ID)
			if err != nil || payload.Masked != (guard == "mask") {
				t.Errorf("the payload is said to be masked: %t (%v)", payload.Masked, err)
			}
			shown["payload"] = string(payload.Body)
			says := map[string]int{"off": 0, "mask": 2}[guard]
			if n := strings.Count(shown["page "], "contain them in full"); n != says {
				t.Errorf("the page says %d times that card numbers are masked", n)
			}
			for what, text := range shown {
				if !strings.Contains(text, want) || strings.Contains(text, unwanted) {
					t.Errorf("%s: %s", what, text)
				}
			}
		})
	}
}
