package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/outbox"
)

// pay marks an order as paid and notifies the merchant, or does neither.
func pay(ctx context.Context, db *sql.DB, order, merchant string, notice []byte) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit it changes nothing
	if _, err := tx.ExecContext(ctx, "UPDATE orders SET state = 'paid' WHERE id = ?", order); err != nil {
		return err
	}
	_, err = outbox.Insert(ctx, tx, outbox.MySQL, outbox.Callback{
		ID: order + " paid", Endpoint: merchant, Topic: "payment.succeeded", Ref: order, Body: notice,
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}

func Example() {
	_ = pay
}

// Statement returns the INSERT for a library that Insert does not know, or for another table.
func ExampleStatement() {
	query, args, id, err := outbox.Statement(outbox.Postgres, "pay.outbox", outbox.Callback{
		ID: "order-1001 close", URL: "https://pay.example/close", Ref: "order-1001", Delay: 15 * time.Minute,
		Body: []byte(`{"order": "order-1001"}`),
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(id)
	fmt.Println(query)
	fmt.Printf("%s\n%s\n%s\n", args[1], args[2], args[3])
	// Output:
	// order-1001 close
	// INSERT INTO "pay"."outbox" (id, kind, request, body) VALUES ($1, $2, $3, $4)
	// callback
	// {"content_type":"application/json","delay":"15m0s","ref":"order-1001","url":"https://pay.example/close"}
	// {"order": "order-1001"}
}

// An invalid callback is an error before any statement runs.
func ExampleErrInvalid() {
	_, _, _, err := outbox.Statement(outbox.MySQL, "", outbox.Callback{Body: []byte("{}")})
	fmt.Println(errors.Is(err, outbox.ErrInvalid), err)
	// Output: true outbox: invalid url: is empty, and so is endpoint; set one of them, or Event
}
