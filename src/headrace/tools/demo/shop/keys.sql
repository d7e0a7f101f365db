-- Foreign keys and the indexes behind them, added after the fill: one pass each, not one check per row.

CREATE UNIQUE INDEX users_external_id ON users (external_id);
CREATE UNIQUE INDEX profiles_user_id ON profiles (user_id);
CREATE INDEX addresses_user_id ON addresses (user_id);
CREATE UNIQUE INDEX products_sku ON products (sku);
CREATE INDEX orders_user_id ON orders (user_id);
CREATE INDEX orders_shipping_address_id ON orders (shipping_address_id);
CREATE INDEX order_items_order_id ON order_items (order_id);
CREATE INDEX order_items_product_id ON order_items (product_id);
CREATE UNIQUE INDEX product_tags_link ON product_tags (product_id, tag_id);
CREATE INDEX product_tags_tag_id ON product_tags (tag_id);
CREATE INDEX reviews_product_id ON reviews (product_id);
CREATE INDEX reviews_user_id ON reviews (user_id);

ALTER TABLE profiles ADD FOREIGN KEY (user_id) REFERENCES users ON UPDATE CASCADE ON DELETE CASCADE;
ALTER TABLE addresses ADD FOREIGN KEY (user_id) REFERENCES users ON UPDATE CASCADE ON DELETE CASCADE;
ALTER TABLE orders ADD FOREIGN KEY (user_id) REFERENCES users ON UPDATE CASCADE ON DELETE CASCADE;
ALTER TABLE orders
    ADD FOREIGN KEY (shipping_address_id) REFERENCES addresses ON UPDATE CASCADE ON DELETE SET NULL;
ALTER TABLE order_items ADD FOREIGN KEY (order_id) REFERENCES orders ON UPDATE CASCADE ON DELETE CASCADE;
ALTER TABLE order_items ADD FOREIGN KEY (product_id) REFERENCES products ON UPDATE CASCADE ON DELETE SET NULL;
ALTER TABLE product_tags ADD FOREIGN KEY (product_id) REFERENCES products ON UPDATE CASCADE ON DELETE CASCADE;
ALTER TABLE product_tags ADD FOREIGN KEY (tag_id) REFERENCES tags ON UPDATE CASCADE ON DELETE CASCADE;
ALTER TABLE reviews ADD FOREIGN KEY (product_id) REFERENCES products ON UPDATE CASCADE ON DELETE CASCADE;
ALTER TABLE reviews ADD FOREIGN KEY (user_id) REFERENCES users ON UPDATE CASCADE ON DELETE SET NULL;
