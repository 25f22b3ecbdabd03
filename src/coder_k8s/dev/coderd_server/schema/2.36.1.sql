-- What coderd 2.36.1 changes in the tables of 2.30.0.

ALTER TABLE users
    ADD COLUMN is_service_account boolean DEFAULT false NOT NULL,
    ADD COLUMN chat_spend_limit_micros bigint,
    ADD CONSTRAINT chat_spend_limit_positive CHECK (chat_spend_limit_micros IS NULL OR chat_spend_limit_micros > 0),
    ADD CONSTRAINT users_service_account_login_type CHECK (NOT is_service_account OR login_type = 'none'),
    ADD CONSTRAINT users_email_not_empty CHECK (is_service_account = (email = ''));

DROP INDEX idx_users_email, users_email_lower_idx;
CREATE UNIQUE INDEX idx_users_email ON users (email) WHERE NOT deleted AND email <> '';
CREATE UNIQUE INDEX users_email_lower_idx ON users (lower(email)) WHERE NOT deleted AND email <> '';

ALTER TABLE organizations ADD COLUMN default_org_member_roles text[] NOT NULL;
