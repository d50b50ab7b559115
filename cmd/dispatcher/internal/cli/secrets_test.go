package cli

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

func TestSecretsCommands(t *testing.T) {
	t.Parallel()
	program.Exchanges(t, map[string]string{
		"GET /v1/secret": `{"lane":null,"use":"rsa","id":"1","label":"sn","secret":"PRIVATE","public":"PUBLIC","hosts":["*"]}`,
		"POST /v1/secret/rotate": `{"use":"text","id":"2","label":null,"secret":"hunter2-hunter2","public":null,"hosts":["a.example"],
 "rotated_at":"2026-11-21T00:00:00.000Z","previous_signs_until":"2099-01-01T00:00:00.000Z"}`,
		"POST /v1/secret/reencrypt": `{"key_id":"1a2b3c4d","done":1200,"failed":0,"left":0,"next":null}`,
	},
		cmdtest.Exchange{Line: "secrets get rsa", Call: "GET /v1/secret?use=rsa", Says: []string{"PUBLIC\n"}},
		cmdtest.Exchange{Line: "secrets get rsa --private", Call: "GET /v1/secret?use=rsa", Says: []string{"PRIVATE\n"}},
		cmdtest.Exchange{
			Line: "secrets rotate text --secret hunter2-hunter2 --hosts a.example,b.example:8443 --overlap 0s --reason r",
			Call: "POST /v1/secret/rotate",
			Body: `{"hosts":["a.example","b.example:8443"],"overlap":"0s","reason":"r","secret":"hunter2-hunter2","use":"text"}`,
			Says: []string{"hunter2-hunter2\n"}, Warns: []string{"signs beside it until 2099"},
		},
		cmdtest.Exchange{
			Line: "secrets reencrypt --reason yearly", Call: "POST /v1/secret/reencrypt", Body: `{"reason":"yearly"}`,
			Says: []string{"1200 rows were re-encrypted with master key 1a2b3c4d, 0 are left"},
		},
		cmdtest.Exchange{Line: "secrets reencrypt --json", Call: "POST /v1/secret/reencrypt", Body: `{}`, Says: []string{`"done": 1200`, `"left": 0`}})
}

// Rows that no master key opens make the command fail, whatever else it did.
func TestSecretsReencryptFailsForWhatItCannotRead(t *testing.T) {
	t.Parallel()
	program.Exchanges(t, map[string]string{
		"POST /v1/secret/reencrypt": `{"key_id":"1a2b3c4d","done":0,"failed":2,"left":2,"next":null}`,
	}, cmdtest.Exchange{
		Line: "secrets reencrypt", Call: "POST /v1/secret/reencrypt", Body: `{}`, Code: console.ExitFailed,
		Says: []string{"2 are left"}, Warns: []string{"2 rows could not be decrypted"},
	})
}
